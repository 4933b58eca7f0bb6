package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/shm"
)

// TestPeers: two nodes use the best common transport, and Peers reports it with the reason.
func TestPeers(t *testing.T) {
	err := shm.Supported()
	require.Have(t, "shm", err == nil, fmt.Sprint(err))
	list := func(names ...string) nexar.Config { return nexar.Config{Transports: names} }
	plain, plainAlone := list("tcp", "quic"), list("tcp")
	plain.PlainBulk, plainAlone.PlainBulk = true, true
	for name, test := range map[string]struct {
		configs    [2]nexar.Config // of ranks 0 and 1
		path, bulk string
		encrypted  bool
		why        string // Reason of rank 1
		common     string
	}{
		"by default":      {[2]nexar.Config{}, "shm", "shm", false, "same host", "shm"},
		"tcp and quic":    {[2]nexar.Config{list("tcp", "quic"), list("tcp", "quic")}, "quic", "tcp+tls", true, "first choice", "quic+tcp"},
		"tcp":             {[2]nexar.Config{list("tcp"), list("tcp")}, "tcp+tls", "tcp+tls", true, "first choice", "tcp"},
		"tcp and all":     {[2]nexar.Config{list("tcp"), {}}, "tcp+tls", "tcp+tls", true, "no shm there; no quic there", "tcp"},
		"all and tcp":     {[2]nexar.Config{{}, list("shm", "tcp")}, "shm", "shm", false, "same host", "shm"},
		"plain tcp":       {[2]nexar.Config{plain, plain}, "quic", "tcp", false, "first choice", "quic+tcp"},
		"plain tcp alone": {[2]nexar.Config{plainAlone, plainAlone}, "tcp", "tcp", false, "first choice", "tcp"},
		"one plain":       {[2]nexar.Config{list("tcp", "quic"), plain}, "quic", "quic", true, "Plain", "quic"},
		"quic":            {[2]nexar.Config{list("quic"), list("quic")}, "quic", "quic", true, "first choice", "quic"},
		"shm alone":       {[2]nexar.Config{list("shm"), list("shm", "shm")}, "shm", "shm", false, "same host", "shm"},
		"shm and all":     {[2]nexar.Config{list("shm"), {}}, "shm", "shm", false, "same host", "shm"},
		"shm and tcp":     {[2]nexar.Config{list("tcp", "quic"), list("shm")}, "quic", "quic", true, "no shm there", "quic"},
		"all and no tcp":  {[2]nexar.Config{list("quic"), {}}, "quic", "quic", true, "no shm there; no tcp+tls there", "quic"},
		"the other order": {[2]nexar.Config{list("quic", "tcp", "shm"), {}}, "shm", "shm", false, "same host", "shm"},
	} {
		t.Run(name, func(t *testing.T) {
			seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true})
			if err != nil {
				t.Fatal(err)
			}
			defer seed.Close()
			nodes := make([]*nexar.Node, 2)
			joinBoth(t, seed, nodes, func(i int, cfg *nexar.Config) {
				cfg.Transports, cfg.PlainBulk, cfg.Rank = test.configs[i].Transports, test.configs[i].PlainBulk, &i
			})
			for i, n := range nodes {
				defer n.Close()
				peers := n.Peers()
				if len(peers) != 1 {
					t.Fatalf("rank %d has %d peers, want 1", i, len(peers))
				}
				p := peers[0]
				if p.Rank != 1-i || p.Node != nodes[1-i].ID() || p.Transport != test.path || p.BulkTransport != test.bulk || p.Encrypted != test.encrypted || p.Addr == "" {
					t.Errorf("rank %d: got %+v, want %s, %s, %v", i, p, test.path, test.bulk, test.encrypted)
				}
				if i == 1 && !strings.Contains(p.Reason, test.why) {
					t.Errorf("got %q, want %q", p.Reason, test.why)
				}
				if w := n.World(); w.Transport() != test.common || w.Encrypted() != test.encrypted {
					t.Errorf("rank %d: transport of the world is %s, encrypted: %v", i, w.Transport(), w.Encrypted())
				}
			}
			worldtest.OnAll(t, []*nexar.Comm{nodes[0].World(), nodes[1].World()}, func(rank int, c *nexar.Comm) error {
				x := slices.Repeat([]float32{1}, 300_000)
				if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil {
					return err
				}
				if i := slices.IndexFunc(x, func(v float32) bool { return v != 2 }); i >= 0 {
					return fmt.Errorf("element %d is %v", i, x[i])
				}
				return nil
			})
		})
	}
}

// TestUnacknowledgedBytes: a node keeps short messages until the peer acknowledges them, and asks it to when the link is idle.
func TestUnacknowledgedBytes(t *testing.T) {
	nodes, _ := worldtest.JoinAll(t, 2, nexar.SeedConfig{}, nexar.Config{Transports: []string{"tcp"}, HeartbeatInterval: 20 * time.Millisecond})
	comms := []*nexar.Comm{nodes[0].World(), nodes[1].World()}
	kept := func() int { return nodes[0].Peers()[0].UnacknowledgedBytes }
	most := 0
	for most < 16<<10 { // A watcher may have asked for an acknowledgement just now.
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			x := make([]byte, 1<<10)
			for range 64 {
				if rank == 1 {
					if _, err := nexar.Recv(t.Context(), c, x, 0, 0); err != nil {
						return err
					}
				} else if err := nexar.Send(t.Context(), c, x, 1, 0); err != nil {
					return err
				}
			}
			if rank == 0 {
				most = kept()
			}
			return nil
		})
	}
	for kept() > 4<<10 {
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
		time.Sleep(time.Millisecond)
	}
}
