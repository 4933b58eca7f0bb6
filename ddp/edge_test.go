package ddp_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/ddp"
	"github.com/nexar-go/nexar/nexartest"
)

// TestFormatsOfZeros: zeros stay 0, and small gradients keep their precision beside much larger ones in another bucket.
func TestFormatsOfZeros(t *testing.T) {
	for _, format := range []ddp.Format{ddp.F16, ddp.BF16, ddp.FP8, ddp.Int8} {
		run(t, 2, func(t *testing.T, c *nexar.Comm) {
			large, small, zero := make([]float32, 1000), make([]float32, 3), make([]float32, 700)
			ps := []ddp.Param[float32]{{"zero", zero, slices.Clone(zero)}, {"small", small, slices.Clone(small)}, {"large", large, slices.Clone(large)}}
			m, err := ddp.New(t.Context(), c, ps, ddp.Config{BucketBytes: 1, Format: format})
			must(t, err)
			defer m.Close()
			for range 3 {
				_, err := m.Begin(t.Context(), 1)
				must(t, err)
				for k := range large {
					ps[2].Grad[k] = 1e6
				}
				for k := range small {
					ps[1].Grad[k] = 1
				}
				for i := range ps {
					m.Ready(len(ps) - 1 - i)
				}
				_, err = m.Finish(t.Context())
				must(t, err)
				for k, x := range ps[1].Grad {
					if math.Abs(float64(x)-1) > 0.01 {
						t.Fatalf("%d: element %d is %v, want 1", format, k, x)
					}
				}
				if !slices.Equal(ps[0].Grad, zero) {
					t.Fatalf("%d: gradients of zeros are %v", format, ps[0].Grad[:4])
				}
			}
		})
	}
}

// TestDeterministic: buckets, and so the bits of sums, follow the order of the parameters, and not that of the calls of Ready in the first step.
func TestDeterministic(t *testing.T) {
	for _, isDeterministic := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := nexartest.Cluster{Config: nexar.Config{Deterministic: isDeterministic}}.New(t, 2)
			w.Start(func(ctx context.Context, node *nexar.Node) error {
				ps := params(node.World().Rank(), float32Of)
				m, err := ddp.New(ctx, node.World(), ps, ddp.Config{BucketBytes: 1})
				if err != nil {
					return err
				}
				defer m.Close()
				for step := range 2 {
					if _, err := m.Begin(ctx, 1); err != nil {
						return err
					}
					ps[0].Grad[0] = float32(node.World().Rank())
					m.Ready(0) // first, but its bucket is the last one
					time.Sleep(time.Second)
					if node.World().Rank() == 0 {
						synctest.Wait() // for the reduction, if one has begun
						isReduced := ps[0].Grad[0] == 0.5
						if want := step == 1 && !isDeterministic; isReduced != want {
							t.Errorf("deterministic %t, step %d: the first gradient is reduced alone: %t, want %t", isDeterministic, step, isReduced, want)
						}
					}
					for i := 1; i < len(ps); i++ {
						m.Ready(i)
					}
					if _, err := m.Finish(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			must(t, errors.Join(w.Wait()...))
		})
	}
}

// TestStartOnce: Start is called before the first step of all, and not when the world changes, or a checkpoint would undo steps.
func TestStartOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.New(t, 3)
		w.Start(func(ctx context.Context, node *nexar.Node) error {
			tr, starts := new(trainee), 0
			job := tr.job(t, time.Second)
			job.Start = func(context.Context, *nexar.Comm) (int64, error) { starts++; return 0, nil }
			err := ddp.Run(ctx, node, job)
			if err == nil && (starts > 1 || tr.joined[0] == 0 && starts == 0) {
				t.Errorf("the node that began in worlds after steps %v called Start %d times, want once before the first step", tr.joined, starts)
			}
			return err
		})
		time.Sleep(5500 * time.Millisecond)
		w.Kill(0) // the next world begins with a node that has the state
		time.Sleep(10 * time.Second)
		w.Add()
		for rank, err := range w.Wait() {
			if err != nil && !errors.Is(err, nexartest.ErrKilled) {
				t.Errorf("node %d: %v", rank, err)
			}
		}
	})
}

// TestConfigs: values that no Config may have.
func TestConfigs(t *testing.T) {
	run(t, 1, func(t *testing.T, c *nexar.Comm) {
		for _, cfg := range []ddp.Config{
			{BucketBytes: -1},
			{Format: ddp.Int8 + 1},
			{NonFinite: ddp.Pass + 1},
			{MaxNorm: -1},
			{MaxNorm: math.NaN()},
			{MaxNorm: math.Inf(1)},
			{Root: 1},
			{Root: -1},
			{Format: ddp.F16, Compressor: func(int) compress.Compressor { return nil }},
		} {
			if _, err := ddp.New(t.Context(), c, params(0, float32Of), cfg); !errors.Is(err, ddp.ErrConfig) {
				t.Errorf("%+v: %v, want ErrConfig", cfg, err)
			}
		}
		if _, err := ddp.New(t.Context(), c, []ddp.Param[float32]{}, ddp.Config{}); !errors.Is(err, ddp.ErrParams) {
			t.Errorf("without parameters: %v, want ErrParams", err)
		}
	})
}
