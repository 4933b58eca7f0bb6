package compress

import (
	"fmt"
	"math"
	"testing"

	"github.com/nexar-go/nexar/internal/kernel"
	"pgregory.net/rapid"
)

// TestCast16MatchesScalar: the vector conversions of package kernel match its scalar ones for
// all lengths and offsets.
func TestCast16MatchesScalar(t *testing.T) {
	round := map[Format]func(float32) float32{
		BFloat16: func(f float32) float32 { return kernel.BF16ToF32(kernel.F32ToBF16(f)) },
		Float16:  func(f float32) float32 { return kernel.F16ToF32(kernel.F32ToF16(f)) },
	}
	for format, round := range round {
		rapid.Check(t, func(t *rapid.T) {
			c := Cast16{Format: format}
			src := vectors(anyFloat()).Draw(t, "src")
			for i, got := range decode(t, c, encode(t, c, src), len(src)) {
				if want := add(0, round(src[i])); math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("format %d: element %d, %v, is decoded as %v, want %v", format, i, src[i], got, want)
				}
			}
		})
	}
}

func TestCast16Bounds(t *testing.T) {
	for _, test := range []struct {
		format            Format
		relative, least   float64
		overflow, largest float32
	}{
		{BFloat16, 0x1p-8, 0x1p-134, math.MaxFloat32 - 0x1p119 + 0x1p104, 0x1.fep127},
		{Float16, 0x1p-11, 0x1p-25, 65520, 65504},
	} {
		c := Cast16{Format: test.format}
		t.Run(fmt.Sprint("format ", test.format), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				src := vectors(finiteFloat()).Draw(t, "src")
				for i, got := range decode(t, c, encode(t, c, src), len(src)) {
					x := float64(src[i])
					if math.Abs(x) >= float64(test.overflow) {
						if !math.IsInf(float64(got), int(math.Copysign(1, x))) {
							t.Fatalf("%v is decoded as %v, want an infinity", x, got)
						}
						continue
					}
					if bound := max(math.Abs(x)*test.relative, test.least); math.Abs(float64(got)-x) > bound {
						t.Fatalf("%v is decoded as %v, error above %v", x, got, bound)
					}
				}
			})
			below := math.Nextafter32(test.overflow, 0)
			got := decode(t, c, encode(t, c, []float32{test.overflow, below, -below}), 3)
			if !math.IsInf(float64(got[0]), 1) || got[1] != test.largest || got[2] != -test.largest {
				t.Errorf("%v, its predecessor and the negative of that are decoded as %v, want infinity and ±%v", test.overflow, got, test.largest)
			}
		})
	}
}

func TestCast16Length(t *testing.T) {
	for _, n := range []int{0, 1, cast16Block - 1, cast16Block, cast16Block + 1, 3*cast16Block + 5} {
		if got, want := len(encode(t, Cast16{}, make([]float32, n))), headerBytes+2*n; got != want {
			t.Errorf("%d elements take %d bytes, want %d", n, got, want)
		}
	}
}
