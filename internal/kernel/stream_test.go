package kernel

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestStream: Stream copies any length at any alignment, and changes nothing else.
func TestStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const room = 4096
		src := rapid.SliceOfN(rapid.Byte(), room, room).Draw(t, "src")
		n := rapid.IntRange(0, room-128).Draw(t, "n")
		from, to := rapid.IntRange(0, 127).Draw(t, "from"), rapid.IntRange(0, 127).Draw(t, "to")
		dst := bytes.Repeat([]byte{0xa5}, room)
		want := bytes.Clone(dst)
		copy(want[to:to+n], src[from:])
		Stream(dst[to:to+n], src[from:from+n])
		if !bytes.Equal(dst, want) {
			t.Fatalf("%d bytes from %d to %d", n, from, to)
		}
	})
}

// TestStreamer: processors with assembly have a Streamer.
func TestStreamer(t *testing.T) {
	some := false
	for _, i := range vectorImplementations() {
		some = some || i.has && i.name != "neon"
	}
	if got := Streamer() != nil; got != some {
		t.Errorf("Streamer is available: %v, want %v", got, some)
	}
}
