//race:none it starts no goroutine

package session

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/transport"
)

// circulant returns a graph of n nodes with links to the next ones and those after them: three
// nodes can be removed before it falls apart.
func circulant(n int) relaytest.Graph {
	g := make(relaytest.Graph, n)
	for i := range n {
		g[i] = []int{(i + 1) % n, (i + 2) % n, (i + n - 1) % n, (i + n - 2) % n}
	}
	return g
}

// Everything arrives in both directions, over several sessions with several pipes.
func TestTransfer(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 3))
		graph := relaytest.Random(rng, 8, 6)
		w := newWorld(t, seed, graph, graph.Diameter())
		var transfers []transfer
		for range 6 {
			from := rng.IntN(8)
			a := w.dial(from, (from+1+rng.IntN(7))%8)
			transfers = append(transfers, a.transfer(rng, 4, 300_000))
			w.At(20*time.Millisecond, func() {
				if b := a.other(); b != nil {
					transfers = append(transfers, b.transfer(rng, 3, 100_000))
				}
			})
		}
		w.Run(time.Minute)
		if len(transfers) != 12 {
			t.Fatalf("seed %d: %d sessions were accepted, want 6", seed, len(transfers)-6)
		}
		for _, f := range transfers {
			f.check()
		}
		if w.verdicts[Altered] > 0 {
			t.Errorf("seed %d: %d honest frames count as altered", seed, w.verdicts[Altered])
		}
	}
}

// All nodes send to all others at once, through small buffers.
func TestAllToAll(t *testing.T) {
	const n = 9
	w := newWorld(t, 1, relaytest.Ring(n), n)
	var transfers []transfer
	for i := range n {
		for j := range n {
			if i != j {
				transfers = append(transfers, w.dial(i, j).transfer(w.Rand, 2, 150_000))
			}
		}
	}
	w.Run(time.Minute)
	resent := uint64(0)
	for _, f := range transfers {
		f.check()
		resent += f.from.Stats().Resent
	}
	t.Logf("%d frames were sent again", resent)
}

// Relays die at random moments, and links are cut. Nothing is lost, repeated or reordered.
func TestRelayDeaths(t *testing.T) {
	resent := uint64(0)
	for seed := range uint64(18) {
		rng := rand.New(rand.NewPCG(seed, 4))
		w := newWorld(t, seed, circulant(12), 10)
		var transfers []transfer
		for _, to := range []int{3, 5, 6} {
			transfers = append(transfers, w.dial(0, to).transfer(rng, 3, 1_000_000))
		}
		for _, relay := range [][]int{{1, 10, 8}, {2, 4, 11}, {7, 9, 1}}[seed%3] {
			w.At(time.Duration(rng.IntN(8000))*time.Microsecond, func() { w.Kill(relay) })
		}
		w.Run(time.Minute)
		for _, f := range transfers {
			f.check()
			resent += f.from.Stats().Resent
		}
	}
	t.Logf("%d frames were sent again", resent)
	if resent == 0 {
		t.Error("no frame was sent again: the deaths came too early or too late")
	}
}

// A death of a relay delays a transfer by a few round trips, not by the timeout of a silent path.
func TestRerouteIsPrompt(t *testing.T) {
	w := newWorld(t, 1, relaytest.Ring(6), 6)
	a := w.dial(0, 2) // through node 1
	w.Run(time.Second)
	data := make([]byte, 2_000_000)
	a.send(data)
	start, end := w.Now, time.Time{}
	w.At(time.Millisecond, func() { w.Kill(1) })
	var look func()
	look = func() {
		if b := a.other(); len(b.pipes) > 0 && b.pipes[0].Ended() {
			end = w.Now
			return
		}
		w.At(time.Millisecond, look)
	}
	look()
	w.Run(time.Minute)
	if took := end.Sub(start); end.IsZero() || took > 150*time.Millisecond {
		t.Errorf("the transfer took %v, want at most 150ms", took)
	}
}

// A short message that is lost in a dead relay is sent again when the routes have changed, without waiting for a
// timeout.
func TestLostMessageIsPrompt(t *testing.T) {
	w := newWorld(t, 1, relaytest.Ring(6), 6)
	a := w.dial(0, 2)
	w.Run(time.Second)
	a.send([]byte("message"))
	w.At(75*time.Microsecond, func() { w.Kill(1) }) // It is on the way from node 1 to node 2.
	w.Run(timeoutMin / 2)
	if b := a.other(); len(b.pipes) == 0 || b.read[0].String() != "message" {
		t.Errorf("the message has not arrived after %v", timeoutMin/2)
	}
}

// A repeated acknowledgement is dropped.
func TestRepeatedAck(t *testing.T) {
	w := newWorld(t, 1, relaytest.Graph{{1}, {0}}, 2)
	a := w.dial(0, 1)
	deliver, repeated := w.Nodes[0].Deliver, 0
	w.Nodes[0].Deliver = func(f forward.Frame, from int) {
		again := f
		again.Payload = slices.Clone(f.Payload)
		deliver(f, from)
		if f.Kind == forward.Ack && a.Receive(w.Now, again) == Repeated {
			repeated++
		}
	}
	w.Run(time.Second)
	a.transfer(w.Rand, 1, 100_000)
	w.Run(time.Second)
	if got := int(a.Stats().Repeated); repeated == 0 || got != repeated {
		t.Errorf("%d acknowledgements count as repeated, want %d, at least 1", got, repeated)
	}
}

// tampering are the actions of a hostile relay. It never uses more credit than an honest one: an
// extra frame takes the place of one that it drops.
func tampering(rng *rand.Rand) map[string]func(f forward.Frame, to int) []forward.Frame {
	var old []forward.Frame
	held, spare := make(map[int]forward.Frame), make(map[int]int)
	drops := func(f forward.Frame, _ int) []forward.Frame {
		if rng.IntN(4) == 0 {
			return nil
		}
		return []forward.Frame{f}
	}
	instead := func(change func(f forward.Frame) forward.Frame) func(forward.Frame, int) []forward.Frame {
		return func(f forward.Frame, _ int) []forward.Frame {
			f.Payload = slices.Clone(f.Payload)
			if f.Kind >= forward.Data && rng.IntN(5) == 0 {
				return []forward.Frame{change(f)}
			}
			return []forward.Frame{f}
		}
	}
	return map[string]func(f forward.Frame, to int) []forward.Frame{
		"drops": drops,
		"alters the payload": instead(func(f forward.Frame) forward.Frame {
			f.Payload[rng.IntN(len(f.Payload))] ^= 1 << rng.IntN(8)
			return f
		}),
		"alters the sequence number": instead(func(f forward.Frame) forward.Frame { f.Seq += 1 + uint64(rng.IntN(3)); return f }),
		"shortens":                   instead(func(f forward.Frame) forward.Frame { f.Payload = f.Payload[:len(f.Payload)/2]; return f }),
		"empties":                    instead(func(f forward.Frame) forward.Frame { f.Payload = nil; return f }),
		"turns data into acks": instead(func(f forward.Frame) forward.Frame {
			if f.Kind == forward.Data {
				f.Kind = forward.Ack
			} else {
				f.Kind = forward.Data
			}
			return f
		}),
		"forges acknowledgements": instead(func(f forward.Frame) forward.Frame {
			a := acks{next: 1 << 20}
			f.Kind, f.Seq, f.Payload = forward.Ack, 1<<20, a.append(make([]byte, 16))
			return f
		}),
		"forges the end of the handshake": instead(func(f forward.Frame) forward.Frame {
			f.Kind, f.Payload = forward.Abort, []byte("go away")
			return f
		}),
		"repeats": func(f forward.Frame, to int) []forward.Frame {
			old = append(old, f)
			if rng.IntN(8) == 0 {
				spare[to] = min(spare[to]+f.Charge(), relaytest.Reserve)
				return nil
			}
			again := old[rng.IntN(len(old))]
			again.Hops = f.Hops
			if size := again.Charge(); again.Destination == f.Destination && size <= spare[to] {
				spare[to] -= size
				return []forward.Frame{f, again}
			}
			return []forward.Frame{f}
		},
		"reorders": func(f forward.Frame, to int) []forward.Frame {
			before, holds := held[to]
			if delete(held, to); holds {
				return []forward.Frame{f, before}
			}
			if rng.IntN(2) == 0 {
				held[to] = f
				return nil
			}
			return []forward.Frame{f}
		},
	}
}

// All frames between two nodes pass a hostile relay. Everything arrives exactly, and the
// tampering is noticed.
func TestHostileRelay(t *testing.T) {
	for name := range tampering(nil) {
		t.Run(name, func(t *testing.T) {
			verdicts := make(map[Verdict]int)
			for seed := range uint64(6) {
				w := hostile(t, seed, name)
				for v, n := range w.verdicts {
					verdicts[v] += n
				}
			}
			switch {
			case name == "repeats" && verdicts[Repeated] == 0,
				(strings.HasPrefix(name, "alters") || name == "shortens") && verdicts[Altered] == 0,
				strings.HasPrefix(name, "forges the end") && verdicts[Unexpected] == 0:
				t.Errorf("the tampering was not noticed: verdicts %v", verdicts)
			}
			t.Logf("verdicts: %v", verdicts)
		})
	}
}

// hostile sends data in both directions through a hostile relay.
func hostile(t *testing.T, seed uint64, name string) *world {
	rng := rand.New(rand.NewPCG(seed, 6))
	w := newWorld(t, seed, relaytest.Graph{{1}, {0, 2}, {1}}, 4)
	a := w.dial(0, 2)
	w.Run(time.Second) // The handshake has its own test.
	w.Nodes[1].Tamper = tampering(rng)[name]
	there := a.transfer(rng, 3, 200_000)
	back := a.other().transfer(rng, 3, 200_000)
	w.Run(10 * time.Minute)
	there.check()
	back.check()
	if w.verdicts[Altered] != w.suspects[1] {
		t.Errorf("%d altered frames came from node 1, want all %d", w.suspects[1], w.verdicts[Altered])
	}
	return w
}

// A relay that drops everything is avoided, in the handshake as well, if there is another path.
func TestBlackHole(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t, 1, relaytest.Ring(6), 6)
		drop := func(f forward.Frame, _ int) []forward.Frame { return nil }
		if !late {
			w.Nodes[1].Tamper = drop
		}
		a := w.dial(0, 2)
		w.Run(3 * time.Second)
		w.Nodes[1].Tamper = drop
		there := a.transfer(w.Rand, 3, 500_000)
		w.Run(time.Minute)
		there.check()
	}
}

// A handshake that a relay alters fails, or succeeds with the right peer.
func TestHostileHandshake(t *testing.T) {
	failed, succeeded := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 8))
		w := newWorld(t, seed, relaytest.Graph{{1}, {0, 2}, {1}}, 4)
		w.Nodes[1].Tamper = func(f forward.Frame, _ int) []forward.Frame {
			f.Payload = slices.Clone(f.Payload)
			if rng.IntN(6) == 0 && len(f.Payload) > 0 {
				f.Payload[rng.IntN(len(f.Payload))] ^= 1 << rng.IntN(8)
			}
			return []forward.Frame{f}
		}
		a := w.dial(0, 2)
		w.Run(time.Minute)
		if b := a.other(); a.Established() && b.Established() {
			succeeded++
			w.Nodes[1].Tamper = nil
			there := a.transfer(rng, 2, 50_000)
			w.Run(time.Minute)
			there.check()
		} else {
			failed++
			if a.Established() {
				t.Errorf("seed %d: the client has a session, the server none", seed)
			}
			if a.Err() == nil {
				t.Errorf("seed %d: the handshake has failed without an error", seed)
			}
		}
	}
	t.Logf("%d handshakes failed, %d succeeded", failed, succeeded)
	if failed == 0 || succeeded == 0 {
		t.Error("the relay alters too much or too little")
	}
}

// A node cannot pose as another one: its certificate has its own identity.
func TestImpostor(t *testing.T) {
	w := newWorld(t, 1, relaytest.Graph{{1}, {0, 2}, {1}}, 4)
	w.creds[2] = w.creds[1] // Node 1 has taken the place of node 2.
	a := w.dial(0, 2)
	w.Run(time.Minute)
	if !errors.Is(a.Err(), transport.ErrIdentity) || !strings.Contains(a.Err().Error(), relaytest.ID(2).String()) {
		t.Errorf("got %v, want ErrIdentity and the expected node", a.Err())
	}
	if b := a.other(); b.Established() {
		t.Error("the impostor has a session")
	}

	w = newWorld(t, 1, relaytest.Graph{{1}, {0, 2}, {1}}, 4)
	w.creds[0] = w.creds[1] // Node 1 dials in the name of node 0.
	a = w.dial(0, 2)
	w.Run(time.Minute)
	if b := a.other(); b.Established() || !errors.Is(b.Err(), transport.ErrIdentity) {
		t.Errorf("the server accepts an impostor, or has error %v, want ErrIdentity", b.Err())
	}
	if a.Established() || a.Err() == nil || !strings.Contains(a.Err().Error(), "refused") {
		t.Errorf("the impostor has error %v, want that of a refused handshake", a.Err())
	}
}

// A pipe that is not read fills its window and delays no other pipe.
func TestUnreadPipe(t *testing.T) {
	w := newWorld(t, 1, relaytest.Ring(4), 4)
	a := w.dial(0, 2)
	w.Run(time.Second)
	b := a.other()
	b.paused = true
	a.send(make([]byte, 4<<20))
	w.Run(time.Second)
	if got := b.pipes[0].unread; got != PipeWindow {
		t.Errorf("%d bytes wait to be read, want %d", got, PipeWindow)
	}
	a.send([]byte("short"))
	w.Run(time.Second)
	if got := b.Peek(b.pipes[1], 100); !bytes.Equal(got, []byte("short")) {
		t.Errorf("got %q beside an unread pipe", got)
	}
	b.paused = false
	b.flush()
	w.Run(time.Minute)
	if got := b.read[0].Len(); got != 4<<20 {
		t.Errorf("got %d bytes, want %d", got, 4<<20)
	}
}

// Close ends both sides with data in flight, and every session is soon Finished.
func TestClose(t *testing.T) {
	for _, both := range []bool{false, true} {
		w := newWorld(t, 1, relaytest.Ring(4), 4)
		a := w.dial(0, 2)
		w.Run(time.Second)
		b := a.other()
		a.send(make([]byte, 4<<20))
		b.send(make([]byte, 4<<20))
		w.Run(3 * time.Millisecond)
		a.Session.Close(w.Now)
		if both {
			b.Session.Close(w.Now)
		}
		a.flush()
		b.flush()
		w.Run(time.Minute)
		if !errors.Is(a.Err(), transport.ErrClosed) {
			t.Errorf("the side that closes has error %v", a.Err())
		}
		if want := map[bool]error{false: transport.ErrPeerClosed, true: transport.ErrClosed}[both]; !errors.Is(b.Err(), want) {
			t.Errorf("the other side has error %v, want %v", b.Err(), want)
		}
		if !a.Finished(w.Now) || !b.Finished(w.Now) || a.Stats().Timeouts+b.Stats().Timeouts > 0 {
			t.Errorf("both closed: %v: finished: %v, %v, timeouts: %d, %d", both, a.Finished(w.Now), b.Finished(w.Now), a.Stats().Timeouts, b.Stats().Timeouts)
		}
	}
}

// A dial that is given up leaves no session behind, at any moment.
func TestCloseDuringHandshake(t *testing.T) {
	for after := range 40 {
		w := newWorld(t, 1, relaytest.Ring(4), 4)
		a := w.dial(0, 2)
		w.Run(time.Duration(after) * 20 * time.Microsecond)
		a.Session.Close(w.Now)
		a.flush()
		w.Run(time.Minute)
		if b := a.other(); b != nil && b.Err() == nil || a.Err() == nil {
			t.Errorf("closed after %d × 20 µs: a session is left", after)
		}
	}
}

// A peer that is silent counts as gone after Config.Silence.
func TestSilence(t *testing.T) {
	w := newWorld(t, 1, relaytest.Ring(4), 4)
	a := w.dial(0, 2)
	w.Run(time.Second)
	w.Nodes[2].Deliver = nil
	a.send([]byte("hello"))
	w.Run(DefaultSilence - time.Second)
	if a.Err() != nil {
		t.Errorf("too early: %v", a.Err())
	}
	w.Run(2 * time.Second)
	if err := a.Err(); !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), relaytest.ID(2).String()) {
		t.Errorf("got %v, want ErrPeerGone and the node", err)
	}
}

// A key is replaced after epochFrames frames. Frames around the change may arrive in any order.
func TestKeyEpochs(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, secretSize)
	sealer, opener := newKey(secret), newKey(secret)
	frames := make(map[uint64]forward.Frame)
	for _, seq := range []uint64{0, epochFrames - 2, epochFrames - 1, epochFrames, epochFrames + 1, 2*epochFrames + 5} {
		f := forward.Frame{Kind: forward.Data, Seq: seq}
		sealer.seal(&f, append(make([]byte, 0, 100), byte(seq)))
		frames[seq] = f
	}
	for _, seq := range []uint64{0, epochFrames + 1, epochFrames - 2, epochFrames, epochFrames - 1, 2*epochFrames + 5} {
		f := frames[seq]
		if p, ok := opener.open(&f); !ok || p[0] != byte(seq) {
			t.Errorf("frame %d is not opened", seq)
		}
	}
	for _, seq := range []uint64{0, 9 * epochFrames, 2*epochFrames + 4} {
		f := forward.Frame{Kind: forward.Data, Seq: seq, Payload: make([]byte, 30)}
		if _, ok := opener.open(&f); ok {
			t.Errorf("a forged frame %d is opened", seq)
		}
	}
	if opener.epoch != 2 {
		t.Errorf("the key is that of epoch %d, want 2: forged frames must not change it", opener.epoch)
	}
}
