//race:none it starts no goroutine

package ntstore

import (
	"testing"
	"time"
)

// A machine makes a Writer learn from the given times of a KiB.
type machine struct {
	w                   *Writer
	ordinary, streaming time.Duration
}

// write makes copies of a length, and returns how many of them were not part of a trial, and how many of these used
// non-temporal stores. The times of trials are those of the machine, but for one of each trial, which takes a thousand times as long.
func (m *machine) write(n, bytes int) (settled, streamed int) {
	c := &m.w.classes[classOf(bytes)]
	for range n {
		if c.left > 0 {
			c.left--
			settled++
			if c.streams {
				streamed++
			}
			continue
		}
		streams := c.tried%2 == 1
		took := m.ordinary
		if streams {
			took = m.streaming
		}
		if c.tried == 3 || c.tried == 4 { // the system has run another thread meanwhile
			took *= 1000
		}
		c.learn(streams, bytes, took*time.Duration(bytes)/1024)
	}
	return settled, streamed
}

// TestWriter: a Writer uses the faster kind of stores, in each class of lengths, soon after the machine has changed.
func TestWriter(t *testing.T) {
	const ns = time.Nanosecond
	w := New(func(dst, src []byte) { copy(dst, src) })
	m := machine{w: &w}
	for i, state := range []struct {
		ordinary, streaming time.Duration // of a KiB
		streams             bool
	}{
		{60 * ns, 90 * ns, false},     // the processors share a cache
		{250 * ns, 52 * ns, true},     // they are far from each other
		{116 * ns, 54 * ns, false},    // readers would lose more than the writer gains
		{255 * ns, 54 * ns, true},     // far, as fast as many machines are near
		{2000 * ns, 1990 * ns, false}, // a slow machine
		{2000 * ns, 400 * ns, true},
	} {
		m.ordinary, m.streaming = state.ordinary, state.streaming
		for _, bytes := range []int{shortest, 20 << 10, 128 << 10, 8 << 20} {
			m.write(pauseMax+trialCopies, bytes) // at most until the next trial has ended
			const n = 10_000
			settled, streamed := m.write(n, bytes)
			if want := settled; (streamed == want) != state.streams || !state.streams && streamed > 0 {
				t.Errorf("state %d, %d bytes: %d of %d copies with non-temporal stores, want all: %v", i, bytes, streamed, settled, state.streams)
			}
			if n-settled > n/50 {
				t.Errorf("state %d, %d bytes: %d of %d copies are trials", i, bytes, n-settled, n)
			}
		}
	}
}

// TestWriteUsesStores: Write copies, with non-temporal stores where they are available and the copy is not short.
func TestWriteUsesStores(t *testing.T) {
	streamed := 0
	stream := func(dst, src []byte) { streamed += copy(dst, src) }
	for _, test := range []struct {
		name        string
		w           Writer
		bytes       int
		least, most int // of 1000 copies with non-temporal stores
	}{
		{"short", New(stream), shortest - 1, 0, 0},
		{"trials", New(stream), shortest, trialCopies / 2, 1000},
		{"always", Always(stream), shortest, 1000, 1000},
		{"always but short", Always(stream), shortest - 1, 0, 0},
		{"not available", New(nil), 1 << 20, 0, 0},
	} {
		streamed = 0
		src, dst := make([]byte, test.bytes), make([]byte, test.bytes)
		for i := range 1000 {
			src[i] = byte(i + 1)
			if test.w.Write(dst, src); dst[i] != byte(i+1) {
				t.Fatalf("%s: byte %d is not copied", test.name, i)
			}
		}
		if n := streamed / test.bytes; n < test.least || n > test.most {
			t.Errorf("%s: %d of 1000 copies with non-temporal stores, want %d to %d", test.name, n, test.least, test.most)
		}
	}
}

// TestClasses: lengths up to four times as long share a class.
func TestClasses(t *testing.T) {
	for bytes, want := range map[int]int{shortest: 0, 4*shortest - 1: 0, 4 * shortest: 1, 16*shortest - 1: 1, 16 * shortest: 2, 64*shortest - 1: 2, 64 * shortest: 3, 1 << 40: 3} {
		if got := classOf(bytes); got != want {
			t.Errorf("%d bytes: class %d, want %d", bytes, got, want)
		}
	}
}
