package ddp_test

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/ddp"
)

// TestDifferences: all ranks learn the first difference, and the ranks.
func TestDifferences(t *testing.T) {
	for name, test := range map[string]struct {
		change func(ps []ddp.Param[float32], cfg *ddp.Config) []ddp.Param[float32]
		want   string
	}{
		"length": {func(ps []ddp.Param[float32], _ *ddp.Config) []ddp.Param[float32] {
			ps[3].Data, ps[3].Grad = make([]float32, 9), make([]float32, 9)
			return ps
		}, `ddp: parameter 3 differs between ranks: "p3" with 1 elements of 4 bytes, but "p3" with 9 elements of 4 bytes on rank 2`},
		"name": {func(ps []ddp.Param[float32], _ *ddp.Config) []ddp.Param[float32] {
			ps[0].Name = "q"
			return ps
		}, `ddp: parameter 0 differs between ranks: "p0" with 3 elements of 4 bytes, but "q" with 3 elements of 4 bytes on rank 2`},
		"fewer": {func(ps []ddp.Param[float32], _ *ddp.Config) []ddp.Param[float32] { return ps[:5] },
			`ddp: parameter 5 differs between ranks: "p5" with 64 elements of 4 bytes, but none on rank 2`},
		"configuration": {func(ps []ddp.Param[float32], cfg *ddp.Config) []ddp.Param[float32] {
			cfg.MaxNorm = 1
			return ps
		}, "ddp: the configuration differs between ranks: BucketBytes 4194304, Format 0, a Compressor false, MaxNorm 0, NonFinite 0, Root 0, " +
			"but BucketBytes 4194304, Format 0, a Compressor false, MaxNorm 1, NonFinite 0, Root 0 on rank 2"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 4, func(t *testing.T, c *nexar.Comm) {
				ps, cfg := params(0, float32Of), ddp.Config{}
				if c.Rank() == 2 {
					ps = test.change(ps, &cfg)
				}
				_, err := ddp.New(t.Context(), c, ps, cfg)
				if !errors.Is(err, ddp.ErrParams) || err.Error() != test.want {
					t.Errorf("error %v, want %s", err, test.want)
				}
				_, err = ddp.New(t.Context(), c, params(0, float32Of), ddp.Config{}) // the communicator can still be used
				must(t, err)
			})
		})
	}
}

// TestInvalid: a rank with invalid parameters gets its error, and the others learn of it.
func TestInvalid(t *testing.T) {
	run(t, 2, func(t *testing.T, c *nexar.Comm) {
		cfg := ddp.Config{}
		if c.Rank() == 1 {
			cfg.Root = 2
		}
		_, err := ddp.New(t.Context(), c, params(0, float32Of), cfg)
		want, text := ddp.ErrParams, "ddp: the configuration differs between ranks: BucketBytes 4194304, Format 0, a Compressor false, MaxNorm 0, NonFinite 0, Root 0, "+
			"but ddp: invalid configuration: Root is 2, want a rank below 2 on rank 1"
		if c.Rank() == 1 {
			want, text = ddp.ErrConfig, "ddp: invalid configuration: Root is 2, want a rank below 2"
		}
		if !errors.Is(err, want) || err.Error() != text {
			t.Errorf("error %v, want %s", err, text)
		}
	})
}
