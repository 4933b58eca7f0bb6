package sgd

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/examples/train/mlp"
	"github.com/nexar-go/nexar/nexartest"
)

func TestConfig(t *testing.T) {
	nexartest.Run(t, 1, func(t *testing.T, c *nexar.Comm) {
		both := Config{
			Compressor: func(int) compress.Compressor { return nil },
			Reduce:     func(context.Context, int, []float32) error { return nil },
		}
		for _, cfg := range []Config{{Batch: -1}, {Decay: -1}, {Decay: math.NaN()}, both} {
			if _, err := New(t.Context(), c, mlp.New(1, 2, 2), cfg); !errors.Is(err, ErrConfig) {
				t.Errorf("%+v: got error %v, want ErrConfig", cfg, err)
			}
		}
	})
}

func TestCompressorOf(t *testing.T) {
	const elements = 5000
	for name, most := range map[string]int{"topk": 350, "randomk": 250, "quantize8": 5200, "cast16": 10100} {
		newCompressor, err := CompressorOf(name, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := newCompressor(0).MaxBytes(elements); got > most {
			t.Errorf("%s takes %d bytes for %d elements, want at most %d", name, got, elements, most)
		}
	}
	if c, err := CompressorOf(NoCompression, 1); c != nil || err != nil {
		t.Errorf("none: got error %v, want no compressor", err)
	}
	if _, err := CompressorOf("zip", 1); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), `"zip" is not one of none, topk`) {
		t.Errorf("got error %v, want ErrConfig with the names", err)
	}
}

func TestFalling(t *testing.T) {
	var got []float64
	for epoch := range 4 {
		got = append(got, Falling(2, epoch, 4))
	}
	if want := []float64{2, 1.5, 1, 0.5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestDiverged: all ranks detect weights that differ in one bit on one rank.
func TestDiverged(t *testing.T) {
	nexartest.Run(t, 3, func(t *testing.T, c *nexar.Comm) {
		net := mlp.New(1, 4, 3, 2)
		trainer, err := New(t.Context(), c, net, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trainer.Digest(t.Context()); err != nil {
			t.Errorf("equal weights: %v", err)
		}
		if c.Rank() == 2 {
			p := &net.Layers[1].Params[0]
			*p = math.Float32frombits(math.Float32bits(*p) ^ 1)
		}
		if _, err := trainer.Digest(t.Context()); !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "rank 2") {
			t.Errorf("got error %v, want ErrDiverged with rank 2", err)
		}
	})
}

// TestEnds: Epoch returns an error when another rank has left and when its context has ended.
func TestEnds(t *testing.T) {
	train, _ := load(t, 64)
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		trainer, err := New(t.Context(), c, mlp.New(1, 64, 10), Config{})
		if err != nil {
			t.Fatal(err)
		}
		if c.Rank() == 1 {
			return // closes its communicator
		}
		if _, err := trainer.Epoch(t.Context(), train, 0.1); !errors.Is(err, nexar.ErrPeerFailed) {
			t.Errorf("got error %v, want ErrPeerFailed", err)
		}
	})
	nexartest.Run(t, 1, func(t *testing.T, c *nexar.Comm) {
		trainer, err := New(t.Context(), c, mlp.New(1, 64, 10), Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := trainer.Epoch(ctx, train, 0.1); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want the cause of the context", err)
		}
	})
}

// TestUpdate: an update subtracts rate times the gradient plus decay times the weight.
func TestUpdate(t *testing.T) {
	net := mlp.New(1, 1, 1, 1)
	for _, l := range net.Layers {
		copy(l.Params, []float32{2, -4})
		copy(l.Gradient, []float32{0.5, 0.25})
	}
	trainer := Trainer{net: net, cfg: Config{Decay: 0.125}}
	trainer.update(0.5)
	for i, l := range net.Layers {
		if want := []float32{2 - 0.5*(0.5+0.25), -4 - 0.5*(0.25-0.5)}; !slices.Equal(l.Params, want) {
			t.Errorf("layer %d has weights %v, want %v", i, l.Params, want)
		}
	}
}
