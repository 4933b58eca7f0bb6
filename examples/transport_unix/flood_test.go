package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestPeerFloods: a peer that ends pipes without a stream, or asks for streams without end, ends its conn: it does not fill the memory.
func TestPeerFloods(t *testing.T) {
	for name, kind := range map[string]byte{"ends": msgEnd, "dials": msgDial} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, 2)
			var held atomic.Bool // dials wait
			opener := cluster.Transports[0].(*streams)
			dial := opener.dialer
			opener.dialer = func(ctx context.Context, addr string) (net.Conn, error) {
				if held.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dial(ctx, addr)
			}
			dialed, err := opener.Dial(t.Context(), cluster.Transports[1].Addr(), cluster.Identities[1])
			if err != nil {
				t.Fatal(err)
			}
			accepted, err := cluster.Transports[1].Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held.Store(true)
			for pipe := range uint32(2 * maxBacklog) {
				accepted.(*conn).send(kind, 2*pipe+1, 1)
			}
			select {
			case <-dialed.Done():
				if err := dialed.Err(); !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), fmt.Sprint("more than ", maxBacklog)) {
					t.Errorf("the conn has ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Errorf("the conn has not ended; %d pipes wait", len(dialed.(*conn).receivers))
			}
			for _, x := range cluster.Transports {
				x.Close()
			}
		})
	}
}
