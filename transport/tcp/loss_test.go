package tcp

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// TestLossDetector feeds counters of sockets, one sample every 250 ms.
func TestLossDetector(t *testing.T) {
	for name, test := range map[string]struct {
		samples []segmentCounts
		rtt     time.Duration
		lossy   []bool
	}{
		"no retransmissions": {
			samples: []segmentCounts{{900, 0, 0}, {1800, 0, 0}, {2700, 0, 0}},
			lossy:   []bool{false, false, false},
		},
		"a busy host, recorded over loopback: 253 retransmissions, 242 DSACKs": {
			samples: []segmentCounts{{23031, 61, 58}, {46070, 130, 126}, {69101, 194, 186}, {92127, 253, 242}, {92127, 253, 242}},
			lossy:   []bool{false, false, false, false, false},
		},
		"a DSACK a round trip later": {
			samples: []segmentCounts{{10, 2, 0}, {20, 2, 2}, {30, 4, 2}, {40, 4, 4}},
			lossy:   []bool{false, false, false, false},
		},
		"a DSACK for this interval does not excuse the next": {
			samples: []segmentCounts{{10, 2, 2}, {20, 4, 2}, {30, 4, 2}},
			lossy:   []bool{false, false, true},
		},
		"DSACKs without retransmissions excuse nothing later": {
			samples: []segmentCounts{{10, 0, 5}, {20, 0, 9}, {30, 1, 9}, {40, 1, 9}},
			lossy:   []bool{false, false, false, true},
		},
		"one segment of three, on a slow path": {
			samples: []segmentCounts{{3, 1, 0}, {3, 1, 0}, {3, 1, 0}},
			lossy:   []bool{false, true, false},
		},
		"two segments of 900": {
			samples: []segmentCounts{{900, 2, 0}, {1800, 4, 0}, {2700, 6, 0}},
			lossy:   []bool{false, false, false},
		},
		"10 % loss, with a few spurious retransmissions": {
			samples: []segmentCounts{{500, 48, 2}, {1000, 101, 4}, {1500, 151, 9}},
			lossy:   []bool{false, true, true},
		},
		"a lost SYN": {
			samples: []segmentCounts{{0, 1, 0}, {5, 1, 0}},
			lossy:   []bool{false, true},
		},
		"DSACKs after a round trip longer than the interval": {
			samples: []segmentCounts{{10, 2, 0}, {20, 4, 0}, {30, 4, 2}, {40, 4, 4}, {50, 4, 4}},
			rtt:     400 * time.Millisecond,
			lossy:   []bool{false, false, false, false, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d lossDetector
			now := time.Unix(1000, 0)
			for i, counts := range test.samples {
				if got := d.observe(sample{rtt: test.rtt, segments: counts}, now); got != test.lossy[i] {
					t.Errorf("sample %d: lossy: %t, want %t", i, got, test.lossy[i])
				}
				now = now.Add(monitorInterval)
			}
		})
	}
}

// A reporting socket reports counters of the test's choice.
type reporting struct {
	socket
	state sample
}

func (r *reporting) unacked() int   { return math.MaxInt }
func (r *reporting) sample() sample { return r.state }

// TestSpuriousRetransmissions checks that senders keep no copies while all
// retransmissions are spurious, and that they do as soon as some are not.
func TestSpuriousRetransmissions(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	monitored := &conn{t: from.t, outgoing: map[uint32]*sender{s.id: s}} // not sampled by the monitor of the node
	report := &reporting{}
	write := func(n int) {
		t.Helper()
		if _, err := s.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ReadFunc(n, func([]byte) {}); err != nil {
			t.Fatal(err)
		}
	}
	s.conn = monitored
	f := s.flow
	s.flow = &subflow{sock: report, raw: f.raw, ps: f.ps}
	report.socket = f.sock
	now := time.Unix(1000, 0)
	observe := func(counts segmentCounts) {
		report.state = sample{inFlight: true, acked: uint64(counts.sent), segments: counts}
		monitored.sample(now)
		now = now.Add(monitorInterval)
	}
	for i := range uint32(20) {
		n := 4600 * (i + 1)
		observe(segmentCounts{n, 13 * (i + 1), 12 * (i + 1)})
		write(1000)
		if monitored.lossy.Load() || len(s.copies.buf) > 0 {
			t.Fatalf("sample %d: lossy: %t, %d bytes for copies", i, monitored.lossy.Load(), len(s.copies.buf))
		}
	}
	observe(segmentCounts{100_000, 2000, 250})
	observe(segmentCounts{100_001, 2000, 250})
	write(1000)
	if !monitored.lossy.Load() || s.copies.n == 0 {
		t.Errorf("after losses: lossy: %t, %d bytes copied", monitored.lossy.Load(), s.copies.n)
	}
	report.state.timedOut = true
	monitored.lossy.Store(false)
	monitored.sample(now)
	if !monitored.lossy.Load() {
		t.Error("a path on which a retransmission timer has run out is not lossy")
	}
}

// TestCopyRing compares a copyRing with a slice of all bytes.
func TestCopyRing(t *testing.T) {
	require.NoRace(t, "it starts no goroutine")
	var r copyRing
	var all []byte
	next := counting()
	for range 2000 {
		p := next(rand.N(60_000))
		r.add(p)
		all = append(all, p...)
		r.keep(rand.N(min(200_000, 2*r.n) + 1))
		all = all[len(all)-min(len(all), 200_000):]
		n := rand.N(r.n + 1)
		if got := r.last([]byte("x"), n); !bytes.Equal(got[1:], all[len(all)-n:]) || got[0] != 'x' {
			t.Fatalf("the last %d bytes of %d are wrong", n, r.n)
		}
	}
	if most := 2*(200_000+60_000) + copyMin; len(r.buf) > most {
		t.Errorf("the ring has %d bytes, want at most %d", len(r.buf), most)
	}
}

// TestCopiesOnlyUnacked checks that a long write copies only its unacknowledged end.
func TestCopiesOnlyUnacked(t *testing.T) {
	s := &sender{conn: &conn{t: newIdleTransport()}, flow: &subflow{sock: &blackhole{raw: noRaw{}, passes: math.MaxInt32}}}
	s.conn.lossy.Store(true)
	s.conn.t.overstateUnacked = func(int, int) int { return 1000 }
	p := counting()(queryBytes)
	s.recordWritten(p[:5000])
	s.recordWritten(p)
	if got := s.copies.last(nil, s.copies.n); !bytes.Equal(got, p[len(p)-1000:]) {
		t.Errorf("%d bytes are copied, want the last 1000", len(got))
	}
}
