package poll

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/page/model"
	"github.com/nexar-go/nexar/trace"
)

// TestPauses: the slower a poll, the longer the pause after it, so that the seed has at least half of the time for its nodes.
func TestPauses(t *testing.T) {
	for took, want := range map[time.Duration]int{0: 200, 100 * time.Millisecond: 150, 500 * time.Millisecond: 60, 2 * time.Second: 15, 8 * time.Second: 5, time.Minute: 4} {
		synctest.Test(t, func(t *testing.T) {
			var asked, failed atomic.Int32
			p := Poller{
				Ask: func(ctx context.Context) (trace.Cluster, error) {
					asked.Add(1)
					select {
					case <-time.After(took):
						return trace.Cluster{World: 1}, nil
					case <-ctx.Done():
						failed.Add(1)
						return trace.Cluster{}, context.Cause(ctx)
					}
				},
				Show: func(model.View) {},
			}
			p.Enter()
			time.Sleep(time.Minute - time.Millisecond)
			p.Leave()
			if n := int(asked.Load()); n < want-2 || n > want+2 {
				t.Errorf("polls that take %v: %d in a minute, want about %d", took, n, want)
			}
			if took > askMax && failed.Load() == 0 {
				t.Error("a poll had no limit")
			}
		})
	}
}

// TestViewersShare: all viewers share the polls, which end with the last one, also during a poll.
func TestViewersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, shown atomic.Int32
		p := Poller{
			Ask: func(ctx context.Context) (trace.Cluster, error) {
				asked.Add(1)
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				return trace.Cluster{World: 1}, nil
			},
			Show: func(model.View) { shown.Add(1) },
		}
		if first, second := p.Enter(), p.Enter(); first != second {
			t.Error("two viewers wait for different views")
		}
		p.Leave()
		time.Sleep(1500 * time.Millisecond)
		if asked.Load() != 1 || shown.Load() != 1 {
			t.Errorf("asked %d times, shown %d times, want 1 of each", asked.Load(), shown.Load())
		}
		time.Sleep(time.Second) // in the second poll
		p.Leave()
		time.Sleep(time.Hour)
		if asked.Load() != 2 || shown.Load() != 1 {
			t.Errorf("after the last viewer: asked %d times, shown %d times, want 2 and 1", asked.Load(), shown.Load())
		}
		fresh := p.Enter()
		time.Sleep(500 * time.Millisecond)
		select {
		case <-fresh:
			t.Error("the next viewer gets the view of an hour ago")
		default:
		}
		<-p.Enter() // another one, during the poll
		if shown.Load() != 2 {
			t.Errorf("a viewer beside the next one is told after %d views, want 2", shown.Load())
		}
		p.Leave()
		p.Leave()
		if asked.Load() != 3 || shown.Load() != 2 {
			t.Errorf("with the next viewer: asked %d times, shown %d times, want 3 and 2", asked.Load(), shown.Load())
		}
	})
}

// TestFailedPoll: the view of a silent seed keeps the last answer, and has the reason.
func TestFailedPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last model.View
		fails := false
		p := Poller{
			Ask: func(context.Context) (trace.Cluster, error) {
				if fails {
					return trace.Cluster{}, errors.New("connection refused")
				}
				return trace.Cluster{Formed: true, World: 3, Joined: 3}, nil
			},
			Show: func(v model.View) { last = v; fails = true },
		}
		p.Enter()
		time.Sleep(time.Second)
		p.Leave()
		if last.Silent.IsZero() || last.Problem != "connection refused" || last.World != 3 || last.Level != model.Broken {
			t.Errorf("the view is %+v", last)
		}
	})
}
