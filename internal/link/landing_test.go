package link

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// TestLandingParts: a Landing knows which bytes are in memory of the host, after any sequence of arrivals and remote writes.
func TestLandingParts(t *testing.T) {
	const n = 24
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		d, model := NewLanding(make([]byte, n)), make([]int, n) // 0: on the device
		for step := 1; step < 30; step++ {
			at := rng.IntN(n)
			k := 1 + rng.IntN(n-at)
			if rng.IntN(3) == 0 {
				d.Drop(at, k)
				clear(model[at : at+k])
			} else {
				d.Put(bytes.Repeat([]byte{byte(step)}, k), at)
				for i := range k {
					model[at+i] = step
				}
			}
			got, last := make([]int, n), -1
			for _, p := range d.Parts() {
				if p.At < last {
					t.Fatalf("the parts %v are not in order", d.Parts())
				}
				last = p.At + len(p.Bytes)
				for i, b := range p.Bytes {
					got[p.At+i] = int(b)
				}
			}
			for i := range n {
				if got[i] != model[i] {
					t.Fatalf("byte %d is of step %d, want %d (0: on the device)", i, got[i], model[i])
				}
			}
			from := rng.IntN(n)
			to := from + 1 + rng.IntN(n-from)
			all, some := d.OnHost(from, to-from)
			hosted := 0
			for _, s := range model[from:to] {
				if s != 0 {
					hosted++
				}
			}
			if some != (hosted > 0) && all == nil || all != nil && hosted != to-from {
				t.Fatalf("OnHost(%d, %d): %v, %v, with %d bytes on the host", from, to-from, all, some, hosted)
			}
			over := make([]byte, to-from)
			d.Overlay(over, from)
			for i, b := range over {
				if int(b) != model[from+i] {
					t.Fatalf("Overlay: byte %d is of step %d, want %d", from+i, b, model[from+i])
				}
			}
		}
	}
}

// TestDevicePayloads: a payload of a device is written remotely if the receiver gives a key. Otherwise, and after a remote
// write has been refused, it is fetched and sent through a pipe. It lands in the memory of a device only by remote writes.
func TestDevicePayloads(t *testing.T) {
	const n = 5<<19 + 3
	for _, test := range []struct {
		name   string
		set    func(p *remotePair)
		stale  bool
		remote int // bytes
	}{
		{"key", nil, false, n},
		{"no key", func(p *remotePair) { p.cb.owner = false }, false, 0},
		{"stale", nil, true, 0},
		{"refused", func(p *remotePair) {
			writes := 0
			p.ca.hold = func(context.Context) {
				if writes++; writes == 2 { // the second segment
					p.mu.Lock()
					p.recalled[p.keys[0].Key] = true
					p.mu.Unlock()
				}
			}
		}, false, 2 * wire.SegmentMax},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newRemotePair(t, test.set)
			device, data := make([]byte, n), filler(n, n)
			landing, filled, delivered := NewLanding(device), make(signal), make(signal)
			fetched := make(chan int, 8)
			grant := p.grant(&Sink{Dst: device, Landing: landing, Owner: filled})
			x := &Transfer{Grant: grant, Data: data, Owner: delivered, Stale: test.stale, Fetch: func(at, n int) []byte {
				fetched <- n
				return bytes.Clone(data[at : at+n])
			}}
			p.a.Deliver(x)
			p.a.Push()
			filled.wait(t, "the sink")
			delivered.wait(t, "the transfer")
			close(fetched)
			bytesFetched := 0
			for k := range fetched {
				if bytesFetched += k; k > wire.SegmentMax {
					t.Errorf("%d bytes are fetched at a time, want at most a segment, since other transfers wait", k)
				}
			}
			if want := n - test.remote; bytesFetched != want {
				t.Errorf("%d bytes are fetched, want %d", bytesFetched, want)
			}
			if !bytes.Equal(device[:test.remote], data[:test.remote]) || !bytes.Equal(device[test.remote:], make([]byte, n-test.remote)) {
				t.Errorf("the device has not exactly the first %d bytes", test.remote)
			}
			host := 0
			for _, part := range landing.Parts() {
				host += len(part.Bytes)
			}
			landing.Overlay(device, 0)
			if host != n-test.remote || !bytes.Equal(device, data) {
				t.Errorf("%d bytes are in memory of the host, want %d, or they differ", host, n-test.remote)
			}
		})
	}
}

// TestFetchFails: a transfer is dropped if its payload cannot be fetched, and later ones are sent.
func TestFetchFails(t *testing.T) {
	p := newRemotePair(t, func(p *remotePair) { p.cb.owner = false })
	asked := make(chan (<-chan struct{}), 1)
	s := &Sink{Dst: make([]byte, 1000), Owner: make(signal)}
	x := &Transfer{Grant: p.grant(s), Data: filler(1000, 1), Owner: make(signal), Fetch: func(int, int) []byte {
		asked <- p.a.exchange().bulk.drain()
		return nil
	}}
	p.a.Deliver(x)
	p.a.Push()
	soon(t, "the end of the transfer", func() { <-<-asked })
	p.exchange(t, 1000)
	p.a.Recall(x)
	p.b.Ungrant(s)
}

// TestLandingMemory: a payload takes memory of the host for its own range only, and later payloads for the range use it again.
func TestLandingMemory(t *testing.T) {
	d := NewLanding(make([]byte, 1<<20))
	for range 3 {
		d.Put(make([]byte, 100), 5000)
		d.Put(make([]byte, 50), 5010)
	}
	if len(d.blocks) != 1 || len(d.blocks[0].bytes) != 100 {
		t.Errorf("%d blocks, want one of 100 bytes", len(d.blocks))
	}
}
