package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
)

// A countingContext counts the contexts that end with it.
type countingContext struct {
	context.Context
	children atomic.Int32
}

func (c *countingContext) Done() <-chan struct{} { return make(chan struct{}) } // not one of package context, which then calls AfterFunc

func (c *countingContext) AfterFunc(func()) (stop func() bool) {
	c.children.Add(1)
	return func() bool { c.children.Add(-1); return true }
}

// TestSearchHasNoOldContexts: a search that a seed answers again and again, as one that is busy, keeps no context of earlier rounds: a node
// searches for as long as its world has no seed.
func TestSearchHasNoOldContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := &countingContext{Context: t.Context()}
		d := Seeds{Addrs: []string{"127.0.0.1:1"}, Timeout: -1, Dial: func(context.Context, string) (transport.Conn, error) { return nowhere{}, nil }}
		rounds := 0
		err := d.search(ctx, pki.NewToken(), func(context.Context, transport.Conn) error {
			if rounds++; rounds < 100 {
				return handshake.ErrBusy
			}
			return nil
		})
		if n := ctx.children.Load(); err != nil || n != 0 {
			t.Errorf("%v; after %d rounds %d contexts have not ended, want none", err, rounds, n)
		}
	})
}

// TestSearchIsPatient: a seed is reached on a host that is so busy that a handshake takes longer than the first attempt.
func TestSearchIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(ctx context.Context, _ string) (transport.Conn, error) {
			select {
			case <-time.After(15 * time.Second):
				return nowhere{}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		d := Seeds{Addrs: []string{"127.0.0.1:1"}, Dial: dial}
		if err := d.search(t.Context(), pki.NewToken(), func(context.Context, transport.Conn) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
