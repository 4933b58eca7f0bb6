package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
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

// TestSearchAtSharedPorts: a program of others at one of the ports does not end the search, whatever it answers. The seed does.
func TestSearchAtSharedPorts(t *testing.T) {
	other := func(code wire.RefusalCode) error { return &handshake.RefusedError{Code: code, Unproved: true} }
	for _, answer := range []error{
		other(wire.RefusedFull), other(wire.RefusedVersion), other(wire.RefusedMalformed), other(wire.RefusedToken),
		handshake.ErrFalseSeed, transport.ErrIdentity,
	} {
		for _, shared := range []bool{true, false} {
			asked := 0
			d := Seeds{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}, Shared: shared, Dial: func(context.Context, string) (transport.Conn, error) { return nowhere{}, nil }}
			full := &handshake.RefusedError{Code: wire.RefusedFull}
			err := d.search(t.Context(), pki.NewToken(), func(context.Context, transport.Conn) error {
				if asked++; asked == 1 {
					return answer
				}
				return full
			})
			if want := map[bool]error{true: full, false: answer}[shared]; !errors.Is(err, want) {
				t.Errorf("shared: %v, the first answers %v: the search ends with %v, want %v", shared, answer, err, want)
			}
		}
	}
}

// TestSearchAfterChangeOfToken: a node whose token file has changed tries again, as the seed may still have the file before. It does
// not if the file has not changed.
func TestSearchAfterChangeOfToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		write := func() {
			if err := os.WriteFile(path, []byte(pki.NewToken().Reveal()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write()
		token, err := pki.ReadTokenFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		d := Seeds{Addrs: []string{"127.0.0.1:1"}, Dial: func(context.Context, string) (transport.Conn, error) { return nowhere{}, nil }}
		wrong := &handshake.RefusedError{Code: wire.RefusedToken, Unproved: true}
		asked := 0
		refuses := func(context.Context, transport.Conn) error {
			if asked++; asked < 5 {
				return wrong
			}
			return nil
		}
		if err := d.search(t.Context(), token, refuses); !errors.Is(err, wrong) || asked != 1 {
			t.Errorf("before a change: asked %d times, error %v, want once, and that the token is wrong", asked, err)
		}
		write()
		time.Sleep(2 * time.Second)
		if err := d.search(t.Context(), token, refuses); err != nil || asked != 5 {
			t.Errorf("after a change: asked %d times, error %v, want that the fifth attempt succeeds", asked, err)
		}
	})
}
