package mesh

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestOneSideLosesItsProposal: the first connection of two nodes breaks while it is proposed, and one of the nodes does not learn of it.
// The message arrives over another connection, unless it was lost with the first one, and no node counts as failed.
func TestOneSideLosesItsProposal(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 5
	}
	for from, to := range map[int]int{0: 4, 4: 0} {
		for at, other := range map[int]int{0: 4, 4: 0} {
			for moment := 0; moment < 30; moment += step {
				t.Run(fmt.Sprintf("rank %d dials, rank %d after %d ms", from, at, moment), func(t *testing.T) {
					onDemand(t, func(w *world) {
						time.AfterFunc(time.Duration(moment)*time.Millisecond, func() { w.network.CutAt(w.host(at), w.host(other)) })
						began := time.Now()
						err := w.exchange(from, to)
						if err != nil && !strings.Contains(err.Error(), "frames were lost") {
							t.Error(err)
						}
						if took := time.Since(began); took > 3*time.Second {
							t.Errorf("it took %v, want at most 3 s", took)
						}
						w.wantNoFailures()
					})
				})
			}
		}
	}
}

// TestOneSideLosesItsProposalAgain: the connection of two nodes breaks, and the next one while it is proposed. One of the nodes does not learn
// of the second break. The other one dials again, and no node counts as failed.
func TestOneSideLosesItsProposalAgain(t *testing.T) {
	for at := range 2 {
		for moment := range 30 {
			t.Run(fmt.Sprintf("rank %d after %d ms", at, moment), func(t *testing.T) {
				onDemand(t, func(w *world) {
					w.cut(0, 1)
					time.Sleep(time.Duration(moment) * time.Millisecond)
					w.network.CutAt(w.host(at), w.host(1-at))
					time.Sleep(2 * timeout)
					w.wantNoFailures()
				})
			})
		}
	}
}

// closingTransport is a transport to peers that close the first connections.
type closingTransport struct {
	transport.Transport
	closes int
}

func (c *closingTransport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if c.closes > 0 {
		c.closes--
		return nil, fmt.Errorf("dial %s: %w", addr, transport.ErrPeerClosed)
	}
	return c.Transport.Dial(ctx, addr, peer)
}

// TestSilenceAfterClosedDials: a peer that closes all connections is alive. One that has closed some, and then does not answer, has failed.
func TestSilenceAfterClosedDials(t *testing.T) {
	for closes, want := range map[int]membership.PeerEvent{0: membership.LinkLost, 3: membership.LinkLost, math.MaxInt: membership.LinkClosed} {
		for _, isBrief := range []bool{false, true} {
			t.Run(fmt.Sprintf("closes=%d/brief=%v", closes, isBrief), func(t *testing.T) {
				inBubble(t, demandNodes, func(w *world) {
					w.watches = 1
					c := &closingTransport{Transport: w.transports[0]}
					w.transports[0] = c
					w.form()
					c.closes = closes
					timeout := dialTimeout
					if isBrief {
						timeout = w.meshes[0].cfg.demandTimeout(1)
					}
					w.network.PowerOff(w.host(4))
					u, ok := errors.AsType[*UnreachableError](w.meshes[0].dial(w.Context(), 4, nil, timeout))
					if !ok {
						t.Fatal("the dial has not failed")
					}
					if got := lossEvent(u.Reason()); got != want {
						t.Errorf("the error %v is event %v, want %v", u.Reason(), got, want)
					}
				})
			})
		}
	}
}

// slowlyClosing is a transport with connections that end some time after they are closed.
type slowlyClosing struct{ transport.Transport }

type slowlyClosingConn struct{ transport.Conn }

func (c slowlyClosingConn) Close() error {
	time.Sleep(20 * time.Millisecond)
	return c.Conn.Close()
}

func (s slowlyClosing) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := s.Transport.Dial(ctx, addr, peer)
	if err != nil {
		return nil, err
	}
	return slowlyClosingConn{c}, nil
}

// TestAnswerToALateProposal: a proposal gives way to that of the peer, and is answered at this moment, before its connection has ended. The nodes use
// one of both connections, and it does not break.
func TestAnswerToALateProposal(t *testing.T) {
	for moment := -50; moment <= 50; moment += 5 {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			inBubble(t, demandNodes, func(w *world) {
				w.watches = 1
				w.transports[4] = slowlyClosing{w.transports[4]}
				w.form()
				// Rank 4 has the larger NodeID. Its proposal arrives late.
				w.network.SetOneWay(w.host(4), w.host(0), sim.Link{Delay: unansweredMax + time.Duration(moment)*time.Millisecond})
				var both sync.WaitGroup
				for _, from := range []int{0, 4} {
					both.Go(func() {
						if err := w.exchange(from, 4-from); err != nil {
							t.Errorf("from rank %d: %v", from, err)
						}
					})
				}
				both.Wait()
				w.wantNoFailures()
			})
		})
	}
}

// TestDelayOfTwoProposals: a proposal of the peer waits for two others, one after the other. The second one has its own time if this node has
// made it, whether the first one ends early or gives way, and no limit if the peer has made it.
func TestDelayOfTwoProposals(t *testing.T) {
	const slot, longest = 0, 3 * unansweredMax
	for name, test := range map[string]struct {
		first  time.Duration // of the first proposal, which has unansweredMax
		second route
		want   time.Duration
	}{
		"the first one ends early":      {unansweredMax / 2, route{}, unansweredMax + unansweredMax/2},
		"the first one gives way":       {unansweredMax, route{}, 2 * unansweredMax},
		"the second one is of the peer": {unansweredMax / 2, route{peer: idOf(slot), path: new(Path)}, longest},
	} {
		t.Run(name, func(t *testing.T) {
			onDemand(t, func(w *world) {
				m, l, second := w.meshes[4], w.linkOf(4, slot), test.second
				end := func() { m.proposals.end(&second, slot, l, false) }
				second.giveUp = func(error) { end() }
				replace := func() {
					m.loop.ask(func() {
						m.peers[slot].proposal = &second
						m.proposals.nextLocked(slot)
					})
				}
				m.loop.ask(func() { m.peers[slot].proposal = &route{giveUp: func(error) { replace() }} })
				if test.first < unansweredMax {
					time.AfterFunc(test.first, replace)
				}
				time.AfterFunc(longest, end)
				ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				began, r := time.Now(), &route{peer: idOf(slot), conn: testConns(w, 1)[0]}
				if err := m.proposals.begin(ctx, r, slot, l, nil); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("the proposal has waited for %v, want %v", took, test.want)
				}
				m.proposals.end(r, slot, l, false)
			})
		})
	}
}

// A partlyDead is a transport to peers some of whose addresses drop all packets.
type partlyDead struct{ transport.Transport }

func (d partlyDead) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if strings.HasPrefix(addr, "dead") {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return d.Transport.Dial(ctx, addr, peer)
}

// TestDeadAddresses: three dead addresses before the right one delay a dial by less than a second.
func TestDeadAddresses(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		w.watches = 1
		w.view.Nodes[4].Addrs = []string{"dead-1:7000", "dead-2:7000", "dead-3:7000", w.host(4)}
		for rank, transport := range w.transports {
			w.transports[rank] = partlyDead{transport}
		}
		w.form()
		began := time.Now()
		if err := w.meshes[0].dial(w.Context(), 4, nil, dialTimeout); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the dial took %v, want at most a second", took)
		}
	})
}
