package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// linkNodes is the number of nodes in the worlds of these tests: more than the twelve peers that a node watches or
// is watched by, and the few that it negotiates with.
const linkNodes = 20

// inLinkWorld calls f with the nodes of a world in fake time, by rank.
func inLinkWorld(t *testing.T, links string, idle time.Duration, f func(t *testing.T, c *worldtest.SimCluster, nodes []*nexar.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := worldtest.NewSimCluster(t, 1, linkNodes)
		defer c.Close()
		c.Beat = 2 * time.Second // Heartbeats of minutes take most of the time of the test.
		nodes := make([]*nexar.Node, linkNodes)
		defer func() {
			if err := worldtest.ForEach(linkNodes, func(rank int) error {
				if nodes[rank] == nil {
					return nil
				}
				return nodes[rank].Close()
			}); err != nil {
				t.Error(err)
			}
		}()
		if err := worldtest.ForEach(linkNodes, func(rank int) (err error) {
			cfg := simConfig(nexar.Manual, &rank)
			cfg.Links, cfg.LinkIdleTimeout, cfg.Log = links, idle, slog.New(slog.DiscardHandler)
			nodes[rank], err = c.Join(linkHost(rank), cfg)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		f(t, c, nodes)
	})
}

// TestLinksOfConfig: with Config.Links "eager" every node is linked to all others after it has joined, and without it
// only to some.
func TestLinksOfConfig(t *testing.T) {
	require.NoRace(t, "hours of fake time are millions of timers, after which the detector has crashed")
	for _, links := range []string{"", "eager"} {
		t.Run("links="+links, func(t *testing.T) {
			inLinkWorld(t, links, 0, func(t *testing.T, _ *worldtest.SimCluster, nodes []*nexar.Node) {
				purposes := make(map[string]int)
				for _, n := range nodes {
					for _, p := range n.Peers() {
						purposes[p.LinkPurpose]++
					}
				}
				eager := links == "eager"
				if eager != (purposes[""] == 0) || eager != (purposes["eager"] > 0) || purposes["watch"] == 0 {
					t.Errorf("the purposes of the links are %v", purposes)
				}
			})
		})
	}
}

// TestFirstUseConnects: a message, a call and a collective connect a node to a peer that it has not been connected to, and
// [nexar.Peer.LinkPurpose] says which of them.
func TestFirstUseConnects(t *testing.T) {
	inLinkWorld(t, "", 0, func(t *testing.T, _ *worldtest.SimCluster, nodes []*nexar.Node) {
		nothing := func(context.Context, int, []byte) ([]byte, error) { return nil, nil }
		for rank, use := range []struct {
			purpose string
			do      func(c *nexar.Comm, peer int) error
		}{
			{"message", func(c *nexar.Comm, peer int) error { return nexar.Send(t.Context(), c, []int64{1}, peer, 1) }},
			{"call", func(c *nexar.Comm, peer int) error {
				nodes[peer].World().Register("nothing", nothing)
				_, err := c.Call(t.Context(), peer, "nothing", nil)
				return err
			}},
			{"collective", func(c *nexar.Comm, peer int) error {
				return worldtest.ForEach(linkNodes, func(other int) error {
					pair, err := nodes[other].World().Sub(t.Context(), []int{c.Rank(), peer})
					if err != nil || pair == nil {
						return err
					}
					defer pair.Close()
					return nexar.AllReduce(t.Context(), pair, []int64{1}, nexar.Sum)
				})
			}},
		} {
			peer := unlinkedPeer(t, nodes[rank])
			if err := use.do(nodes[rank].World(), peer); err != nil {
				t.Errorf("%s from rank %d to rank %d: %v", use.purpose, rank, peer, err)
			}
			time.Sleep(time.Second)
			// In a collective either rank may need the link first.
			if a, b := purposeOf(nodes[rank], peer), purposeOf(nodes[peer], rank); a != use.purpose && (use.purpose != "collective" || b != use.purpose) {
				t.Errorf("after the first %s from rank %d to rank %d, the link has the purposes %q and %q", use.purpose, rank, peer, a, b)
			}
		}
	})
}

// TestLinkIdleTimeout: a connection that a message has needed stays as long as messages follow each other within
// LinkIdleTimeout, and ends at both nodes after that. Watched peers stay connected. The next message connects the nodes
// again. Without the setting the connection stays.
func TestLinkIdleTimeout(t *testing.T) {
	require.NoRace(t, "hours of fake time are millions of timers, after which the detector has crashed")
	const idle = 30 * time.Second
	for name, limit := range map[string]time.Duration{"set": idle, "default": 0} {
		t.Run(name, func(t *testing.T) {
			inLinkWorld(t, "", limit, func(t *testing.T, _ *worldtest.SimCluster, nodes []*nexar.Node) {
				peer := unlinkedPeer(t, nodes[0])
				number := int64(0)
				send := func() {
					t.Helper()
					number++
					if err := nexar.Send(t.Context(), nodes[0].World(), []int64{number}, peer, 1); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second) // Before, the receiver would need the link as well.
					got := []int64{0}
					if _, err := nexar.Recv(t.Context(), nodes[peer].World(), got, 0, 1); err != nil || got[0] != number {
						t.Fatalf("got message %d, %v, want %d", got[0], err, number)
					}
				}
				want := func(when, at0, atPeer string) {
					t.Helper()
					if a, b := purposeOf(nodes[0], peer), purposeOf(nodes[peer], 0); a != at0 || b != atPeer {
						t.Errorf("%s: the link has the purposes %q and %q, want %q and %q", when, a, b, at0, atPeer)
					}
				}
				want("before the first message", "", "")
				watched := countPurpose(nodes[0], "watch")
				for range 6 {
					send()
					want("after a message", "message", "peer")
					time.Sleep(idle / 2)
				}
				want("between messages", "message", "peer")
				if limit <= 0 {
					time.Sleep(10 * idle)
					want("minutes after the last message", "message", "peer")
					return
				}
				time.Sleep(2 * idle)
				want("long after the last message", "", "")
				if now := countPurpose(nodes[0], "watch"); now != watched || watched == 0 {
					t.Errorf("rank 0 is connected to %d peers that watch it or that it watches, and was to %d", now, watched)
				}
				send()
				want("after another message", "message", "peer")
			})
		})
	}
}

// TestUnreachablePeer: a message to a node that is alive, and that the network cuts off from this one, ends with an error that
// names the rank, the node, its address and the reason, within the time that the first connection to a peer may take.
func TestUnreachablePeer(t *testing.T) {
	require.NoRace(t, "hours of fake time are millions of timers, after which the detector has crashed")
	inLinkWorld(t, "", 0, func(t *testing.T, c *worldtest.SimCluster, nodes []*nexar.Node) {
		peer := unlinkedPeer(t, nodes[0])
		c.Network.SetLink(linkHost(0), linkHost(peer), sim.Link{Down: true})
		began := time.Now()
		_, err := nexar.Recv(t.Context(), nodes[0].World(), make([]int64, 1), peer, 1)
		e, ok := errors.AsType[*nexar.PeerError](err)
		if !ok || e.Rank != peer || e.Node != nodes[peer].ID() || e.Left {
			t.Fatalf("got error %v, want one about rank %d", err, peer)
		}
		for _, want := range []string{fmt.Sprintf("rank %d (node %v at %s) failed: ", peer, e.Node, e.Addr), "no connection at " + e.Addr + ": ", "no answer"} {
			if e.Addr == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("got error %v, want one with %q", err, want)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the error came after %v, want at most a minute", took)
		}
	})
}

func linkHost(rank int) string { return fmt.Sprint("host", rank) }

// unlinkedPeer returns a rank that a node is not connected to.
func unlinkedPeer(t *testing.T, n *nexar.Node) int {
	t.Helper()
	for _, p := range n.Peers() {
		if p.LinkPurpose == "" {
			return p.Rank
		}
	}
	t.Fatal("the node is connected to all others")
	return -1
}

// countPurpose returns the number of connections of a node for a reason.
func countPurpose(n *nexar.Node, purpose string) (count int) {
	for _, p := range n.Peers() {
		if p.LinkPurpose == purpose {
			count++
		}
	}
	return count
}

// purposeOf returns the reason for the connection of a node to a rank.
func purposeOf(n *nexar.Node, rank int) string {
	for _, p := range n.Peers() {
		if p.Rank == rank {
			return p.LinkPurpose
		}
	}
	return "no such peer"
}
