package server

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

var errTestBusy = fmt.Errorf("dial: %w: it answers, but takes no connection now", transport.ErrBusy)

// TestBusySeedIsAskedAgain: nodes that join, and status requests, try again at a seed that
// refuses connections for a while.
func TestBusySeedIsAskedAgain(t *testing.T) {
	s := newSeed(t, 1, nil)
	dials := 0
	d := client.Seeds{Addrs: []string{s.addr}, MinPause: time.Millisecond, MaxPause: 4 * time.Millisecond}
	d.Dial = func(ctx context.Context, addr string) (transport.Conn, error) {
		if dials++; dials%4 != 0 {
			return nil, errTestBusy
		}
		return dialTLS(ctx, addr)
	}
	session, err := d.Join(t.Context(), s.request(0))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := d.Status(t.Context(), s.token, wire.JoinStatusRequest{}); err != nil {
		t.Fatal(err)
	}
	if dials != 8 {
		t.Errorf("%d dials, want 8", dials)
	}
}

// TestBusySeedUntilTheDeadline: pauses between attempts grow up to a bound, and the error
// says that the seed has answered and is busy, although the last attempt was cut short.
func TestBusySeedUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials []time.Time
		d := client.Seeds{Addrs: []string{"10.0.0.1:7946"}, Timeout: time.Minute}
		d.Dial = func(ctx context.Context, addr string) (transport.Conn, error) {
			dials = append(dials, time.Now())
			return nil, errTestBusy
		}
		token := pki.NewToken()
		for _, ask := range []func() error{
			func() error { _, err := d.Join(t.Context(), client.Request{Token: token}); return err },
			func() error { _, err := d.Status(t.Context(), token, wire.JoinStatusRequest{}); return err },
		} {
			start := time.Now()
			dials = nil
			err := ask()
			says(t, err, handshake.ErrBusy, "no seed has admitted this node", "seed 10.0.0.1:7946 is busy", "takes no connection now")
			if took := time.Since(start); took != time.Minute {
				t.Errorf("it took %v, want the whole minute", took)
			}
			for i := range dials[1:] {
				pause, longest := dials[i+1].Sub(dials[i]), min(50*time.Millisecond<<min(i, 10), 2*time.Second)
				if pause < longest/2 || pause > longest {
					t.Errorf("pause %d is %v, want %v to %v", i, pause, longest/2, longest)
				}
			}
			if len(dials) < 30 {
				t.Errorf("%d attempts in a minute", len(dials))
			}
		}
	})
}
