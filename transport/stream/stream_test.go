package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCluster returns transports over unix sockets.
func newCluster(tb testing.TB, n int) (made transporttest.Cluster) {
	ca := testpeer.NewCA(tb)
	dir := tb.TempDir()
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		creds := ca.Node(tb, name)
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		t, err := New(Config{
			Name: "unix", Locality: transport.SameHost, Listener: l,
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", addr)
			},
		}, transport.Env{
			Node: name, Server: creds.Server(), Client: creds.Client, Peer: creds.Peer, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			tb.Fatal(err)
		}
		made.Transports = append(made.Transports, t)
		made.Identities = append(made.Identities, name)
	}
	made.Kill = func(i int) {
		made.Transports[i].(*streams).stop(func(c *conn) { c.end(transport.ErrClosed) })
	}
	return made
}

func TestConformance(t *testing.T) { transporttest.Run(t, newCluster) }

// TestPeerFloods: a peer that ends pipes without a stream, or asks for streams without end, ends its conn: it does not fill the memory.
func TestPeerFloods(t *testing.T) {
	for name, kind := range map[string]byte{"ends": msgEnd, "dials": msgDial} {
		t.Run(name, func(t *testing.T) {
			cluster := newCluster(t, 2)
			var held atomic.Bool // dials wait
			dialer := cluster.Transports[0].(*streams)
			dial := dialer.cfg.Dial
			dialer.cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				if held.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return dial(ctx, addr)
			}
			dialed, err := dialer.Dial(t.Context(), cluster.Transports[1].Addr(), cluster.Identities[1])
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
