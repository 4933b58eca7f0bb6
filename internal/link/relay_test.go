package link

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// relayPipes are the pipes for relay frames of one side of a link.
type relayPipes struct {
	transport.Sender
	transport.Receiver
}

// TestRelayLane: both sides get the pipes for relay frames of each other, beside a link that works, with one connection and
// with two. The pipes end with the connection.
func TestRelayLane(t *testing.T) {
	for name, apart := range map[string]bool{"one connection": false, "two connections": true} {
		t.Run(name, func(t *testing.T) {
			var sides [2]chan relayPipes
			cfg := func(side int) Config {
				sides[side] = make(chan relayPipes, 2)
				return Config{Relay: func(_ *Link, s transport.Sender, r transport.Receiver) { sides[side] <- relayPipes{s, r} }}
			}
			x := newApart(t)
			first, second := cfg(0), cfg(1)
			if apart {
				x.come <- x.bb
				first.Bulk, first.BulkPipes, second.Await = x.ba, wire.BulkPipesMax, x.await
			}
			x.a = startWith(t, x.ca, x.ha, first)
			x.b = startWith(t, x.cb, x.hb, second)
			a, b := <-sides[0], <-sides[1]
			for _, pair := range [][2]relayPipes{{a, b}, {b, a}} {
				if _, err := pair[0].Write([]byte("relay")); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, 5)
				if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != "relay" {
					t.Errorf("read %q, %v", got, err)
				}
			}
			send(x.a, x.b, 100_000, 3).wait(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			soon(t, "Close", func() { x.a.Close(ctx) })
			if err := x.hb.wait(t); err != errLeft {
				t.Errorf("the other side has ended with %v, want a goodbye", err)
			}
			soon(t, "Read", func() {
				if _, err := b.Read(make([]byte, 1)); err == nil {
					t.Error("a pipe for relay frames outlives its connection")
				}
			})
			if len(sides[0])+len(sides[1]) > 0 {
				t.Error("a side got pipes twice")
			}
		})
	}
}
