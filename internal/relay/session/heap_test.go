package session

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
)

const (
	// floodMax is the largest number of frames of a flood.
	floodMax = 400
	// floodHeap is the memory of a session besides two bytes for each unread byte and the frames of the windows: pipes, items, and what the
	// runtime and the test itself allocate meanwhile.
	floodHeap = 512 << 10
)

// A flood makes the frames of a hostile peer from a script. Three bytes of the script are an item: its type, the pipe and the length.
type flood struct{ opened uint32 }

// frame returns the plaintext of a frame with the items of a script, as far as they fit.
func (f *flood) frame(script []byte) (b []byte) {
	for ; len(script) >= 3 && len(b)+itemSize < plainMax; script = script[3:] {
		r := item{kind: 1 + script[0]%itemClose, pipe: uint32(script[1])}
		if script[1] >= 128 { // counted from the newest pipe
			r.pipe = f.opened - 1 - uint32(script[1]-128)
		}
		room := plainMax - itemSize - len(b)
		switch r.kind {
		case itemOpen:
			r.pipe = f.opened
			f.opened++
		case itemData:
			r.count = uint32(min(1+int(script[2])*int(script[2]), room))
		case itemCredit:
			r.count = uint32(script[2])
		}
		b = r.append(b)
		if r.kind == itemData {
			b = append(b, make([]byte, r.count)...)
		}
	}
	return b
}

// What this side does with the pipes of a flood before each frame.
const (
	ignores  = iota // accepts none
	hoards          // accepts them, reads none, and closes those with odd numbers
	readsAll        // accepts and reads them
	habits
)

// A session holds at most two bytes for each unread byte of its pipes, whatever the frames of its peer contain. The first frame follows one
// script, and the others another one. lost is the number of a frame that does not arrive; 0 means none.
func FuzzHeap(f *testing.F) {
	const pipe0, pipe1, newest, whole = 0, 1, 128, 255
	script := func(items ...[3]byte) (b []byte) {
		for _, i := range items {
			b = append(b, i[0]-1, i[1], i[2])
		}
		return b
	}
	full := func(items ...[3]byte) []byte {
		return script(slices.Repeat(items, plainMax/itemSize/len(items))...)
	}
	one, two := script([3]byte{itemOpen}), script([3]byte{itemOpen}, [3]byte{itemOpen})
	single := [3]byte{itemData, pipe0, 0}
	for habit := range uint8(habits) {
		f.Add(two, script(single, [3]byte{itemData, pipe1, whole}), habit, uint16(floodMax), uint16(0))
		f.Add(one, append(script(single), full([3]byte{itemCredit})...), habit, uint16(floodMax), uint16(0))
		f.Add(one, script([3]byte{itemData, pipe0, 25}, single), habit, uint16(floodMax), uint16(20))
		f.Add(one, full(single), habit, uint16(PipeWindow/(plainMax/(itemSize+1))), uint16(0))
		f.Add(one, full([3]byte{itemOpen}, [3]byte{itemEnd, newest}), habit, uint16(floodMax), uint16(0))
	}
	f.Fuzz(func(t *testing.T, once, again []byte, habit uint8, frames, lost uint16) {
		heapOf := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		now := time.Unix(1, 0)
		s, peer := openSession()
		s.Open(now) // The peer can give credit for a pipe.
		var accepted []*Incoming
		accept := func() *Incoming {
			if habit%habits == ignores {
				return nil
			}
			return s.AcceptPipe(now)
		}
		var from flood
		before := heapOf()
		for seq := range min(uint64(frames), floodMax) {
			script := again
			if seq == 0 {
				script = once
			}
			plain := from.frame(script)
			if seq == 0 || seq != uint64(lost) {
				s.Receive(now, sealed(peer, seq, plain))
			}
			s.Take()
			for p := accept(); p != nil; p = accept() {
				accepted = append(accepted, p)
			}
			for _, p := range accepted {
				switch {
				case habit%habits == readsAll:
					s.Consume(now, p, len(s.Peek(p, forward.PayloadMax)))
				case p.id%2 == 1:
					s.Stop(now, p)
				}
			}
		}
		grown := heapOf() - before
		unread := 0
		for _, p := range s.mux.incoming {
			unread += p.unread
		}
		if limit := int64(2*unread + windowBytes + windowFrames*acksSize + floodHeap); grown > limit {
			t.Errorf("the heap has grown by %d bytes for %d unread ones, want at most %d; error %v", grown, unread, limit, s.Err())
		}
		runtime.KeepAlive(accepted)
	})
}
