package ddp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/ddp"
	"github.com/nexar-go/nexar/nexartest"
)

// lengths are those of the parameters of a model: some share a bucket, one is empty, and one has a bucket of its own.
func lengths() []int { return []int{3, 700, 0, 1, 2500, 64} }

// params returns parameters with values that depend on the rank.
func params[T ddp.Float](rank int, of func(float64) T) (list []ddp.Param[T]) {
	for i, n := range lengths() {
		p := ddp.Param[T]{Name: fmt.Sprint("p", i), Data: make([]T, n), Grad: make([]T, n)}
		for k := range p.Data {
			p.Data[k] = of(float64(rank*1000 + i*10 + k%7))
		}
		list = append(list, p)
	}
	return list
}

// gradient is an element of the gradient of a rank in a step.
func gradient(step, rank, param, k int) float64 {
	return math.Sin(float64(1+step*13+rank*7+param*3+k)) * math.Pow(2, float64(k%5-2))
}

// mean is the mean of gradient over ranks with so many samples.
func mean(step, param, k int, samples []int) float64 {
	sum, total := 0.0, 0
	for rank, n := range samples {
		sum += float64(n) * gradient(step, rank, param, k)
		total += n
	}
	return sum / float64(total)
}

func float32Of(x float64) float32     { return float32(x) }
func float64Of(x float64) float64     { return x }
func f16Of(x float64) nexar.Float16   { return nexar.ToFloat16(float32(x)) }
func bf16Of(x float64) nexar.BFloat16 { return nexar.ToBFloat16(float32(x)) }

// run calls f on all ranks.
func run(t *testing.T, n int, f func(t *testing.T, c *nexar.Comm)) {
	t.Helper()
	nexartest.Run(t, n, f)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMean: after New all ranks have the parameters of the root, and after each step the mean of the gradients, with the same bits.
func TestMean(t *testing.T) {
	t.Run("float64", func(t *testing.T) { testMean(t, float64Of, func(x float64) float64 { return x }, 1e-12) })
	t.Run("float32", func(t *testing.T) { testMean(t, float32Of, func(x float32) float64 { return float64(x) }, 1e-5) })
	t.Run("Float16", func(t *testing.T) {
		testMean(t, f16Of, func(x nexar.Float16) float64 { return float64(x.Float32()) }, 2e-2)
	})
	t.Run("BFloat16", func(t *testing.T) {
		testMean(t, bf16Of, func(x nexar.BFloat16) float64 { return float64(x.Float32()) }, 1e-1)
	})
}

func testMean[T ddp.Float](t *testing.T, of func(float64) T, back func(T) float64, tolerance float64) {
	const steps = 3
	for name, samples := range map[string][]int{"even": {2, 2, 2}, "uneven": {5, 0, 1}, "one rank": {3}} {
		t.Run(name, func(t *testing.T) {
			run(t, len(samples), func(t *testing.T, c *nexar.Comm) {
				ps := params(c.Rank(), of)
				m, err := ddp.New(t.Context(), c, ps, ddp.Config{BucketBytes: 1000, Root: len(samples) - 1})
				must(t, err)
				defer m.Close()
				if want := params(len(samples)-1, of); !slices.Equal(ps[1].Data, want[1].Data) {
					t.Error("the parameters are not those of the root")
				}
				for step := range steps {
					total, err := m.Begin(t.Context(), samples[c.Rank()])
					must(t, err)
					if want := sum(samples); total != want {
						t.Errorf("%d samples, want %d", total, want)
					}
					for i := range ps { // in another order in each step
						i = (i + step) % len(ps)
						for k := range ps[i].Grad {
							ps[i].Grad[k] = of(gradient(step, c.Rank(), i, k))
							if samples[c.Rank()] == 0 {
								ps[i].Grad[k] = of(math.NaN()) // without samples they do not count
							}
						}
						m.Ready(i)
					}
					_, err = m.Finish(t.Context())
					must(t, err)
					for i, p := range ps {
						for k, x := range p.Grad {
							if want := mean(step, i, k, samples); math.Abs(back(x)-want) > tolerance*8 {
								t.Fatalf("step %d: element %d of gradient %d is %v, want %v", step, k, i, back(x), want)
							}
						}
						wantSame(t, c, p.Grad)
					}
				}
			})
		})
	}
}

func sum(list []int) (s int) {
	for _, n := range list {
		s += n
	}
	return s
}

// wantSame fails unless all ranks have the same bits.
func wantSame[T ddp.Float](t *testing.T, c *nexar.Comm, v []T) {
	t.Helper()
	all := make([]T, len(v)*c.Size())
	must(t, nexar.AllGather(t.Context(), c, all, v))
	for rank := range c.Size() {
		for k, x := range all[rank*len(v):][:len(v)] {
			if x != v[k] {
				t.Fatalf("element %d is %v on rank %d and %v here", k, x, rank, v[k])
			}
		}
	}
}

// TestFormats: gradients in shorter formats are within the error that the documentation states, the same on all ranks, and later steps
// make up for rounding errors.
func TestFormats(t *testing.T) {
	const steps = 40
	samples := []int{1, 4, 3}
	for _, f := range []struct {
		format ddp.Format
		error  float64 // of the largest magnitude in a block, for each of two roundings
	}{{ddp.F16, 1.0 / (1 << 11)}, {ddp.BF16, 1.0 / (1 << 8)}, {ddp.FP8, 1.0 / (1 << 4)}, {ddp.Int8, 1.0 / 254}} {
		t.Run(fmt.Sprint(f.format), func(t *testing.T) {
			run(t, len(samples), func(t *testing.T, c *nexar.Comm) {
				ps := params(c.Rank(), float32Of)
				m, err := ddp.New(t.Context(), c, ps, ddp.Config{BucketBytes: 1000, Format: f.format})
				must(t, err)
				defer m.Close()
				own, wants := gradients(c.Rank(), 4, len(ps[4].Grad), samples)
				sums := make([]float64, len(own))
				for step := range steps {
					reduce(t, m, samples[c.Rank()], ps[4].Grad, own)
					for k, x := range ps[4].Grad {
						const most = 4 // magnitude of a gradient
						want := wants[k]
						// In later steps each rank also rounds the error of the step before.
						if limit := 2 * 2.01 * f.error * most; math.Abs(float64(x)-want) > limit {
							t.Fatalf("step %d: element %d is %v, want %v within %v", step, k, x, want, limit)
						}
						sums[k] += float64(x)
					}
					wantSame(t, c, ps[4].Grad)
				}
				for k, s := range sums {
					if want := steps * wants[k]; math.Abs(s-want) > 2*2.01*f.error*4+1e-3 {
						t.Errorf("element %d: the sum over %d steps is %v, want %v", k, steps, s, want)
					}
				}
			})
		})
	}
}

// reduce makes a step in which own is the gradient of parameter 4, and the others are not used.
func reduce(t *testing.T, m *ddp.Model[float32], samples int, grad, own []float32) {
	t.Helper()
	_, err := m.Begin(t.Context(), samples)
	must(t, err)
	copy(grad, own)
	m.Ready(4)
	_, err = m.Finish(t.Context())
	must(t, err)
}

// gradients returns the gradient of a parameter of a rank, and its mean over all ranks.
func gradients(rank, param, n int, samples []int) (own []float32, means []float64) {
	for k := range n {
		own = append(own, float32(gradient(0, rank, param, k)))
		means = append(means, mean(0, param, k, samples))
	}
	return own, means
}

// TestCompressor: a compressor that sends few elements sends all of them in time.
func TestCompressor(t *testing.T) {
	run(t, 2, func(t *testing.T, c *nexar.Comm) {
		ps := params(c.Rank(), float32Of)
		m, err := ddp.New(t.Context(), c, ps, ddp.Config{Compressor: func(int) compress.Compressor {
			return &compress.ErrorFeedback{Compressor: &compress.TopK{Ratio: 0.1}}
		}})
		must(t, err)
		defer m.Close()
		const steps = 100
		own, wants := gradients(c.Rank(), 4, len(ps[4].Grad), []int{1, 1})
		sums := make([]float64, len(own))
		for range steps {
			reduce(t, m, 1, ps[4].Grad, own)
			for k, x := range ps[4].Grad {
				sums[k] += float64(x)
			}
			wantSame(t, c, ps[4].Grad)
		}
		for k, s := range sums {
			if want := wants[k]; math.Abs(s/steps-want) > 0.5 {
				t.Errorf("element %d: the mean over %d steps is %v, want %v", k, steps, s/steps, want)
			}
		}
	})
}

// TestAccumulation: before Begin, Ready has no effect; parameters that are not ready count as 0.
func TestAccumulation(t *testing.T) {
	run(t, 2, func(t *testing.T, c *nexar.Comm) {
		ps := params(c.Rank(), float64Of)
		m, err := ddp.New(t.Context(), c, ps, ddp.Config{})
		must(t, err)
		defer m.Close()
		for range 3 {
			ps[0].Grad[0]++
			m.Ready(0)
		}
		_, err = m.Begin(t.Context(), 3)
		must(t, err)
		ps[0].Grad[0]++
		m.Ready(0)
		ps[1].Grad[0] = 8 // of an earlier step
		if c.Rank() == 1 {
			m.Ready(1)
		}
		_, err = m.Finish(t.Context())
		must(t, err)
		if got := []float64{ps[0].Grad[0], ps[1].Grad[0]}; !slices.Equal(got, []float64{4, 4}) {
			t.Errorf("gradients %v, want [4 4]", got)
		}
	})
}

// TestEndOfData: a rank at the end of its data takes part without samples, and all learn when no rank has any.
func TestEndOfData(t *testing.T) {
	run(t, 3, func(t *testing.T, c *nexar.Comm) {
		ps := params(c.Rank(), float64Of)
		m, err := ddp.New(t.Context(), c, ps, ddp.Config{})
		must(t, err)
		defer m.Close()
		steps := 0
		for left := 2 * c.Rank(); ; left = max(0, left-1) {
			total, err := m.Begin(t.Context(), min(1, left))
			must(t, err)
			if total == 0 {
				break
			}
			steps++
			ps[0].Grad[0] = float64(c.Rank())
			_, err = m.Finish(t.Context())
			must(t, err)
		}
		if steps != 4 {
			t.Errorf("%d steps, want those of the rank with most data, 4", steps)
		}
	})
}

// TestNonFinite: the policies, and the names in the error.
func TestNonFinite(t *testing.T) {
	for _, policy := range []ddp.Policy{ddp.Fail, ddp.Skip, ddp.Pass} {
		for _, format := range []ddp.Format{ddp.Exact, ddp.F16, ddp.BF16, ddp.FP8, ddp.Int8} {
			t.Run(fmt.Sprint(policy, format), func(t *testing.T) {
				run(t, 3, func(t *testing.T, c *nexar.Comm) {
					ps := params(c.Rank(), float32Of)
					m, err := ddp.New(t.Context(), c, ps, ddp.Config{NonFinite: policy, Format: format})
					must(t, err)
					defer m.Close()
					step := func(bad float32) (ddp.Result, error) {
						_, err := m.Begin(t.Context(), 1)
						must(t, err)
						for i := range ps {
							for k := range ps[i].Grad {
								ps[i].Grad[k] = 1
							}
							if i == 4 && c.Rank() == 1 {
								ps[i].Grad[2200] = bad
							}
							m.Ready(i)
						}
						return m.Finish(t.Context())
					}
					for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
						r, err := step(bad)
						culprit := ddp.NonFinite{Rank: 1, Param: 4}
						switch policy {
						case ddp.Fail:
							if e, ok := errors.AsType[*ddp.NonFiniteError](err); !ok || e.NonFinite != culprit || e.Name != "p4" {
								t.Errorf("%v, want a NonFiniteError of p4 on rank 1", err)
							}
						case ddp.Skip:
							if must(t, err); !r.Skipped || !slices.Equal(r.NonFinite, []ddp.NonFinite{culprit}) || ps[4].Grad[0] != 0 {
								t.Errorf("%+v and gradients of %v, want to skip %v", r, ps[4].Grad[0], culprit)
							}
						case ddp.Pass:
							if must(t, err); r.Skipped || ps[4].Grad[2200]-ps[4].Grad[2200] == 0 || ps[4].Grad[0] != 1 {
								t.Errorf("%+v and gradients of %v and %v, want 1 and a non-finite one", r, ps[4].Grad[0], ps[4].Grad[2200])
							}
						}
					}
					if _, err := step(1); err != nil || ps[4].Grad[2200] != 1 {
						t.Errorf("the step after: %v, gradient %v, want 1", err, ps[4].Grad[2200])
					}
				})
			})
		}
	}
}

// TestMaxNorm: the norm is that of all gradients, and limited.
func TestMaxNorm(t *testing.T) {
	run(t, 2, func(t *testing.T, c *nexar.Comm) {
		ps := params(c.Rank(), float32Of)
		m, err := ddp.New(t.Context(), c, ps, ddp.Config{MaxNorm: 2.5})
		must(t, err)
		defer m.Close()
		for _, x := range []float32{1, 6} {
			_, err = m.Begin(t.Context(), 1)
			must(t, err)
			for i := range ps {
				clear(ps[i].Grad)
			}
			ps[0].Grad[0], ps[1].Grad[650] = x/2, 2*x/3 // norm 5x/6
			m.Ready(0)
			m.Ready(1)
			r, err := m.Finish(t.Context())
			must(t, err)
			norm := 5 * float64(x) / 6
			if want := float64(x) / 2 * min(1, 2.5/norm); math.Abs(r.Norm-norm) > 1e-5 || math.Abs(float64(ps[0].Grad[0])-want) > 1e-5 {
				t.Errorf("norm %v, gradient %v, want %v and %v", r.Norm, ps[0].Grad[0], norm, want)
			}
		}
	})
}

// TestCheck: an update that depends on the rank is found.
func TestCheck(t *testing.T) {
	run(t, 3, func(t *testing.T, c *nexar.Comm) {
		ps := params(c.Rank(), float64Of)
		m, err := ddp.New(t.Context(), c, ps, ddp.Config{})
		must(t, err)
		defer m.Close()
		must(t, m.Check(t.Context()))
		if c.Rank() == 1 {
			ps[4].Data[17]++
		}
		err = m.Check(t.Context())
		e, ok := errors.AsType[*ddp.DifferenceError](err)
		if !ok || e.What != "parameter 4" || e.Texts[0] != e.Texts[2] || e.Texts[0] == e.Texts[1] {
			t.Errorf("error %v, want one of parameter 4 on rank 1", err)
		}
	})
}

// TestOverlap: a bucket is reduced while a rank still computes, and Ready blocks on nothing.
func TestOverlap(t *testing.T) {
	run(t, 2, func(t *testing.T, c *nexar.Comm) {
		ps := params(c.Rank(), float64Of)
		m, err := ddp.New(t.Context(), c, ps, ddp.Config{BucketBytes: 1})
		must(t, err)
		defer m.Close()
		for range 2 { // with the first order, and with the learned one
			_, err = m.Begin(t.Context(), 1)
			must(t, err)
			for i := len(ps) - 1; i >= 0; i-- {
				m.Ready(i)
				// Without overlap this message would follow the reduction of a later bucket, and nobody would send it.
				_, err := nexar.AllReduceOne(t.Context(), c, 1, nexar.Sum)
				must(t, err)
			}
			_, err = m.Finish(t.Context())
			must(t, err)
		}
	})
}

// TestCancelled: a rank gives up in Finish while another one computes, and both learn of it.
func TestCancelled(t *testing.T) {
	run(t, 2, func(t *testing.T, c *nexar.Comm) {
		m, err := ddp.New(t.Context(), c, params(0, float32Of), ddp.Config{})
		must(t, err)
		defer m.Close()
		_, err = m.Begin(t.Context(), 1)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if c.Rank() == 0 {
			time.AfterFunc(10*time.Millisecond, cancel)
		} else {
			<-m.Comm().Done()
		}
		if _, err = m.Finish(ctx); c.Rank() == 0 && !errors.Is(err, context.Canceled) || c.Rank() == 1 && !errors.Is(err, nexar.ErrRevoked) {
			t.Errorf("rank %d: %v", c.Rank(), err)
		}
	})
}

// TestMisuse: programming errors panic with a text that helps.
func TestMisuse(t *testing.T) {
	run(t, 1, func(t *testing.T, c *nexar.Comm) {
		m, err := ddp.New(t.Context(), c, params(0, float32Of), ddp.Config{})
		must(t, err)
		wantPanic(t, "Finish without Begin", func() { _, _ = m.Finish(t.Context()) })
		_, err = m.Begin(t.Context(), 1)
		must(t, err)
		wantPanic(t, "Begin before Finish", func() { _, _ = m.Begin(t.Context(), 1) })
		m.Ready(1)
		wantPanic(t, `"p1" was ready before`, func() { m.Ready(1) })
		must(t, m.Close()) // ends the step
	})
}

func wantPanic(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if p := fmt.Sprint(recover()); !strings.Contains(p, text) {
			t.Errorf("panic %q, want %q", p, text)
		}
	}()
	f()
}
