package ddp_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/ddp"
)

// TestOverflow: the policy NonFinite applies to a sum that is infinite although the gradients of all ranks are finite.
func TestOverflow(t *testing.T) {
	for _, policy := range []ddp.Policy{ddp.Fail, ddp.Skip, ddp.Pass} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			run(t, 3, func(t *testing.T, c *nexar.Comm) {
				ps := params(c.Rank(), f16Of)
				m, err := ddp.New(t.Context(), c, ps, ddp.Config{NonFinite: policy})
				must(t, err)
				defer m.Close()
				step := func(x float32) (ddp.Result, error) {
					_, err := m.Begin(t.Context(), 1)
					must(t, err)
					ps[1].Grad[17] = nexar.ToFloat16(x)
					m.Ready(1)
					return m.Finish(t.Context())
				}
				r, err := step(60000)
				culprit := ddp.NonFinite{Rank: ddp.NoRank, Param: 1}
				switch policy {
				case ddp.Fail:
					if e, ok := errors.AsType[*ddp.NonFiniteError](err); !ok || e.NonFinite != culprit || !strings.Contains(err.Error(), `"p1", are finite on all ranks, but their sum is not`) {
						t.Errorf("%v, want a NonFiniteError of the sum of p1", err)
					}
				case ddp.Skip:
					if must(t, err); !r.Skipped || !slices.Equal(r.NonFinite, []ddp.NonFinite{culprit}) || ps[1].Grad[17] != 0 {
						t.Errorf("%+v and a gradient of %v, want to skip the step", r, ps[1].Grad[17])
					}
				default:
					if must(t, err); r.Skipped || !math.IsInf(float64(ps[1].Grad[17].Float32()), 1) {
						t.Errorf("%+v and a gradient of %v, want an infinite one", r, ps[1].Grad[17])
					}
				}
				if _, err := step(100); err != nil || ps[1].Grad[17].Float32() != 100 {
					t.Errorf("the step after: %v, gradient %v, want 100", err, ps[1].Grad[17])
				}
			})
		})
	}
}
