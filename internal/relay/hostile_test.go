package relay

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// A hostile relay is node 1 of a network. It acts on the frames that it passes on.
type hostile struct {
	n    *network
	act  func(h *hostile, to int, f forward.Frame) []forward.Frame
	acts int

	mu    sync.Mutex
	rng   *rand.Rand
	old   []forward.Frame
	first initial // of the last handshake
}

// pass implements medium.pass.
func (h *hostile) pass(from, to int, f forward.Frame) []forward.Frame {
	if from != 1 || h.act == nil {
		return []forward.Frame{f}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.act(h, to, f)
}

// sometimes reports in one of n calls that it is time to act.
func (h *hostile) sometimes(n int) bool {
	if h.rng.IntN(n) > 0 {
		return false
	}
	h.acts++
	return true
}

// random returns random bytes.
func (h *hostile) random(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(h.rng.Uint32())
	}
	return b
}

// firstPacket returns the first packet of a frame.
func firstPacket(f forward.Frame) []byte {
	if f.Kind != forward.Packets {
		return nil
	}
	packet, _ := forward.CutPacket(f.Payload)
	return packet
}

// reply returns a frame with a packet to the source of f, as its destination would send it.
func reply(f forward.Frame, packet []byte) forward.Frame {
	return forward.Frame{
		Kind: forward.Packets, Hops: 1, Salt: forward.ReplySalt(f.Salt), Source: f.Destination, Destination: f.Source,
		Payload: forward.AppendPacket(nil, packet),
	}
}

// with returns f with another packet.
func with(f forward.Frame, packet []byte) forward.Frame {
	f.Payload = forward.AppendPacket(nil, packet)
	return f
}

// hostileActs are what hostile relays do without making a path useless.
func hostileActs() map[string]func(h *hostile, to int, f forward.Frame) []forward.Frame {
	return map[string]func(h *hostile, to int, f forward.Frame) []forward.Frame{
		"drops": func(h *hostile, _ int, f forward.Frame) []forward.Frame {
			if h.sometimes(20) {
				return nil
			}
			return []forward.Frame{f}
		},
		"delays": func(h *hostile, to int, f forward.Frame) []forward.Frame {
			h.sometimes(1)
			h.n.inject(1, to, f, time.Duration(h.rng.IntN(200))*time.Millisecond)
			return nil
		},
		"repeats": func(h *hostile, to int, f forward.Frame) []forward.Frame {
			h.old = append(h.old[max(0, len(h.old)-300):], f)
			if h.sometimes(3) {
				h.n.inject(1, to, h.old[h.rng.IntN(len(h.old))], time.Duration(h.rng.IntN(500))*time.Millisecond)
				return []forward.Frame{f, f, h.old[h.rng.IntN(len(h.old))]}
			}
			return []forward.Frame{f}
		},
		"alters packets": func(h *hostile, _ int, f forward.Frame) []forward.Frame {
			if h.sometimes(20) {
				for range 1 + h.rng.IntN(4) {
					f.Payload[h.rng.IntN(len(f.Payload))] ^= 1 << h.rng.IntN(8)
				}
			}
			return []forward.Frame{f}
		},
		"alters headers": func(h *hostile, _ int, f forward.Frame) []forward.Frame {
			if h.sometimes(20) {
				switch h.rng.IntN(5) {
				case 0:
					f.Kind = []forward.Kind{forward.Packets, forward.Question, forward.Answer}[h.rng.IntN(3)]
				case 1:
					f.Salt ^= uint8(h.rng.Uint32())
				case 2:
					f.Destination = relaytest.ID(h.rng.IntN(5))
				case 3:
					f.Hops = uint8(1 + h.rng.IntN(4))
				default:
					f.Payload = f.Payload[:h.rng.IntN(len(f.Payload)+1)]
				}
			}
			return []forward.Frame{f}
		},
		"rewrites sources": func(h *hostile, _ int, f forward.Frame) []forward.Frame {
			if f.Kind == forward.Packets && h.sometimes(2) {
				switch h.rng.IntN(3) {
				case 0:
					f.Source = relaytest.ID(h.rng.IntN(5))
				case 1:
					f.Source = f.Destination
				default:
					copy(f.Source[:], h.random(16))
				}
			}
			return []forward.Frame{f}
		},
		"forges": func(h *hostile, _ int, f forward.Frame) []forward.Frame {
			forged := f
			if packet := firstPacket(f); len(packet) > 20 && h.sometimes(2) {
				forged = with(f, append(slices.Clone(packet[:5+h.rng.IntN(15)]), h.random(h.rng.IntN(1280))...))
			}
			return []forward.Frame{forged, f}
		},
		"floods": func(h *hostile, to int, f forward.Frame) []forward.Frame {
			frames := []forward.Frame{f}
			for h.sometimes(1); len(frames) < 20; {
				forged := forward.Frame{
					Kind: []forward.Kind{forward.Packets, forward.Question, forward.Answer}[h.rng.IntN(3)], Hops: 1, Salt: uint8(h.rng.Uint32()),
					Source: relaytest.ID(h.rng.IntN(5)), Destination: relaytest.ID(to), Payload: h.random(h.rng.IntN(2000)),
				}
				if h.rng.IntN(2) == 0 {
					copy(forged.Source[:], h.random(16))
				}
				frames = append(frames, forged)
			}
			return frames
		},
		"sends back": func(h *hostile, _ int, f forward.Frame) []forward.Frame {
			h.sometimes(1)
			back := f
			back.Source, back.Destination = f.Destination, f.Source
			h.n.inject(1, relaytest.Index(f.Source), back, 0)
			return []forward.Frame{f}
		},
		"resets": func(h *hostile, to int, f forward.Frame) []forward.Frame {
			if packet := firstPacket(f); len(packet) > 30 && packet[0]&0x80 == 0 && h.sometimes(2) {
				forged := with(f, append(append([]byte{0x40 | packet[0]&0x3f}, packet[1:5+h.rng.IntN(16)]...), h.random(30)...))
				h.n.inject(1, relaytest.Index(f.Source), reply(f, forged.Payload[2:]), 0)
				return []forward.Frame{forged, f}
			}
			return []forward.Frame{f}
		},
		"closes": func(h *hostile, to int, f forward.Frame) []forward.Frame {
			packet := firstPacket(f)
			i, isFirst := parseInitial(packet)
			if isFirst {
				h.first = i
			}
			if len(h.first.destination) > 0 && (isFirst || h.sometimes(4)) {
				code := byte(h.rng.IntN(16))
				h.n.inject(1, relaytest.Index(f.Source), reply(f, h.first.seal("server in", h.first.source, []byte("server"), closeFrame(code))), 0)
				return []forward.Frame{f, with(f, h.first.seal("client in", h.first.destination, h.first.source, closeFrame(code)))}
			}
			return []forward.Frame{f}
		},
		"answers with other versions": func(h *hostile, to int, f forward.Frame) []forward.Frame {
			if i, isFirst := parseInitial(firstPacket(f)); isFirst && h.sometimes(1) {
				h.n.inject(1, relaytest.Index(f.Source), reply(f, i.versions()), 0)
			}
			return []forward.Frame{f}
		},
		"answers with retry": func(h *hostile, to int, f forward.Frame) []forward.Frame {
			if i, isFirst := parseInitial(firstPacket(f)); isFirst && h.sometimes(1) {
				h.n.inject(1, relaytest.Index(f.Source), reply(f, i.retry()), 0)
			}
			return []forward.Frame{f}
		},
	}
}

// square returns a ring of 4 nodes: the paths between 0 and 2 go over node 1, the alternative ones over 3.
func square() relaytest.Graph { return relaytest.Graph{{1, 3}, {0, 2}, {1, 3}, {0, 2}} }

// newHostile returns a network whose node 1 is a hostile relay.
func newHostile(t *testing.T, graph relaytest.Graph, act func(h *hostile, to int, f forward.Frame) []forward.Frame) *hostile {
	h := &hostile{rng: rand.New(rand.NewPCG(1, 1)), act: act}
	m := medium{pass: h.pass, latency: func(int, int) time.Duration { return time.Millisecond }}
	h.n = newNetworkOver(t, graph, m, nil)
	return h
}

// TestHostileRelay: whatever a relay does to the packets of others, dials go through as long as there is another path, and the data arrives.
// Unless it delivers nothing, no conn ends.
func TestHostileRelay(t *testing.T) {
	for name, act := range hostileActs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHostile(t, square(), act)
				began := time.Now()
				a, b := h.n.connect(0, 2)
				back, forth := h.n.connect(2, 0)
				dialed := time.Since(began)
				data := payload(600_000)
				for _, ends := range [][2]transport.Conn{{a, b}, {b, a}, {back, forth}} {
					if got := h.n.transfer(ends[0], ends[1], data, func() {}); !bytes.Equal(got, data) {
						t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
					}
				}
				time.Sleep(time.Second)
				for _, c := range []transport.Conn{a, b, back, forth} {
					if err := c.Err(); err != nil {
						t.Errorf("a conn has ended: %v", err)
					}
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				t.Logf("it has acted on %d frames; the dials took %v, all %v", h.acts, dialed, time.Since(began))
				if h.acts == 0 {
					t.Error("the relay has done nothing")
				}
				if dialed > 2*(handshakeTime+time.Second) {
					t.Errorf("the dials took %v", dialed)
				}
			})
		})
	}
}

// The forged packets of TestHostileRelay are good enough to end a handshake. On the only path dials fail with them, and the errors do not say
// that this node has closed.
func TestForgedHandshakePackets(t *testing.T) {
	for name, want := range map[string]string{
		"closes": "forged", "answers with other versions": "no compatible QUIC version", "answers with retry": "TRANSPORT_PARAMETER_ERROR",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHostile(t, relaytest.Graph{{1}, {0, 2}, {1}}, hostileActs()[name])
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := h.n.endpoints[0].Dial(ctx, relaytest.ID(2).String(), "")
				if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, transport.ErrClosed) {
					t.Errorf("got %v, want %q", err, want)
				}
			})
		})
	}
}

// A relay writes its own NodeID as the source into the packets of a dial, so that all replies go over this relay. The node that is dialed
// refuses the conn, since the certificate names another node.
func TestRewrittenSourceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetworkOver(t, line(3), medium{latency: millisecond, pass: func(from, to int, f forward.Frame) []forward.Frame {
			switch {
			case from == 1 && to == 2 && f.Source == relaytest.ID(0):
				f.Source = relaytest.ID(1)
			case from == 2 && f.Destination == relaytest.ID(1):
				f.Destination = relaytest.ID(0)
			}
			return []forward.Frame{f}
		}}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			if c, err := n.endpoints[2].Accept(ctx); err == nil {
				t.Errorf("node 2 has accepted a conn of %s", c.Peer())
			}
		}()
		if c, err := n.endpoints[0].Dial(ctx, relaytest.ID(2).String(), ""); err == nil {
			time.Sleep(100 * time.Millisecond)
			if c.Err() == nil {
				t.Error("the dial succeeds")
			}
		} else if !strings.Contains(err.Error(), "refused") {
			t.Errorf("the dial ends with %v", err)
		}
	})
}

// A relay does the same to the packets of a conn. The replies do not move to the relay, which then could drop them.
func TestRewrittenSourceMovesNoConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		moved, rewrites := 0, false
		n := newNetworkOver(t, line(3), medium{latency: millisecond, pass: func(from, to int, f forward.Frame) []forward.Frame {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case from == 1 && to == 2 && rewrites:
				f.Source = relaytest.ID(1)
			case from == 2 && f.Destination == relaytest.ID(1):
				f.Destination = relaytest.ID(0)
				moved++
			}
			return []forward.Frame{f}
		}}, nil)
		a, b := n.connect(0, 2)
		mu.Lock()
		rewrites = true
		mu.Unlock()
		data := payload(100_000)
		for _, ends := range [][2]transport.Conn{{a, b}, {b, a}} {
			if got := n.transfer(ends[0], ends[1], data, func() {}); !bytes.Equal(got, data) {
				t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
			}
		}
		if moved > 0 {
			t.Errorf("%d frames go to the relay instead of the source", moved)
		}
	})
}

// A relay becomes a black hole in the middle of a transfer, for all frames, for packets, or for those of one direction. The end that waits for
// an answer, or the first of both, ends the conn as stalled, with an error that names both nodes and the relays, and its next dial takes another
// path.
func TestBlackHole(t *testing.T) {
	for name, test := range map[string]struct {
		swallows func(to int, f forward.Frame) bool
		redial   time.Duration // the longest time of the next dial
	}{
		"all frames":  {func(int, forward.Frame) bool { return true }, 100 * time.Millisecond},
		"one way":     {func(to int, _ forward.Frame) bool { return to == 2 }, 100 * time.Millisecond},
		"replies":     {func(to int, _ forward.Frame) bool { return to == 0 }, 100 * time.Millisecond},
		"all packets": {func(_ int, f forward.Frame) bool { return f.Kind == forward.Packets }, 8 * handshakeTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var isHole bool
				h := newHostile(t, square(), func(h *hostile, to int, f forward.Frame) []forward.Frame {
					if isHole && test.swallows(to, f) {
						return nil
					}
					return []forward.Frame{f}
				})
				a, b := h.n.connect(0, 2)
				s, r := h.n.stream(a, b)
				go func() {
					for {
						if _, err := s.Write(payload(10_000)); err != nil {
							return
						}
					}
				}()
				buf := make([]byte, 10_000)
				for range 20 {
					if _, err := r.Read(buf); err != nil {
						t.Fatal(err)
					}
				}
				go func() {
					for {
						if _, err := r.Read(make([]byte, 10_000)); err != nil {
							return
						}
					}
				}()
				h.mu.Lock()
				isHole = true
				h.mu.Unlock()
				began := time.Now()
				end, from, to := a, 0, 2
				select {
				case <-a.Done():
				case <-b.Done():
					end, from, to = b, 2, 0
				}
				took, err := time.Since(began), end.Err()
				t.Logf("after %v: %v", took, err)
				if took < 750*time.Millisecond || took > 2*time.Second || !errors.Is(err, transport.ErrStalled) {
					t.Errorf("the conn has ended after %v with %v, want %v after 0.75 to 2 s", took, err, transport.ErrStalled)
				}
				for _, id := range []membership.NodeID{relaytest.ID(0), relaytest.ID(1), relaytest.ID(2), relaytest.ID(3)} {
					if !strings.Contains(err.Error(), id.String()) {
						t.Errorf("the error %q does not name node %v", err, id)
					}
				}
				began = time.Now()
				c, d := h.n.connect(from, to)
				if took := time.Since(began); took > test.redial {
					t.Errorf("the next dial takes %v, want at most %v", took, test.redial)
				}
				data := payload(100_000)
				if got := h.n.transfer(c, d, data, func() {}); !bytes.Equal(got, data) {
					t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
				}
				began = time.Now()
				h.n.connect(from, to)
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("the dial after that takes %v", took)
				}
			})
		})
	}
}

// A dial whose handshake meets a black hole goes through over another path, and the next one takes that at once.
func TestDialAvoidsHoleBothWays(t *testing.T) {
	require.NoRace(t, "it adds no kind of goroutine")
	synctest.Test(t, func(t *testing.T) {
		h := newHostile(t, square(), func(*hostile, int, forward.Frame) []forward.Frame { return nil })
		for _, most := range []time.Duration{handshakeTime + time.Second, 100 * time.Millisecond} {
			began := time.Now()
			h.n.connect(0, 2)
			if took := time.Since(began); took > most {
				t.Errorf("the dial takes %v, want at most %v", took, most)
			}
		}
	})
}
