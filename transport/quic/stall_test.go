package quic

import (
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// TestStallClock checks when a connection without an answer may have stalled.
func TestStallClock(t *testing.T) {
	const never = -1
	for name, test := range map[string]struct {
		rtt            time.Duration
		sent, received func(i int) uint64 // packets until sample i
		want           int                // the first sample with a stall
	}{
		"idle":                     {0, func(int) uint64 { return 1 }, func(int) uint64 { return 1 }, never},
		"answers":                  {0, func(i int) uint64 { return uint64(i) }, func(i int) uint64 { return uint64(i) }, never},
		"rare answers":             {0, func(i int) uint64 { return uint64(i) }, func(i int) uint64 { return uint64(i / 7) }, never},
		"a late acknowledgement":   {0, func(i int) uint64 { return min(uint64(i), 2) }, func(i int) uint64 { return min(uint64(i), 1) }, never},
		"no answer":                {0, func(i int) uint64 { return uint64(i) }, func(int) uint64 { return 1 }, 10},
		"no answer after idleness": {0, func(i int) uint64 { return uint64(max(i, 50)) }, func(int) uint64 { return 1 }, 59},
		"sent again, ever later":   {0, func(i int) uint64 { return uint64(min(i, 3) + i/8) }, func(int) uint64 { return 1 }, 10},
		"a long round trip":        {500 * time.Millisecond, func(i int) uint64 { return uint64(i) }, func(int) uint64 { return 1 }, 22},
	} {
		t.Run(name, func(t *testing.T) {
			var k stallClock
			start, first := time.Now(), never
			for i := 0; i < 100 && first < 0; i++ {
				s := quicgo.ConnectionStats{SmoothedRTT: test.rtt, PacketsSent: test.sent(i), PacketsReceived: test.received(i)}
				if k.observe(s, start.Add(time.Duration(i)*stallInterval)) > 0 {
					first = i
				}
			}
			if first != test.want {
				t.Errorf("a stall at sample %d, want %d", first, test.want)
			}
		})
	}
}
