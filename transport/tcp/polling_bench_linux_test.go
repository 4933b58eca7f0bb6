package tcp

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkPolling bounces 8 bytes. Both sides wait in ReadFunc, or both poll while a
// third goroutine waits for the pipe. It measures them in turn and reports the medians.
func BenchmarkPolling(b *testing.B) {
	const rounds = 5000
	for name, cfg := range variants() {
		b.Run(name, func(b *testing.B) {
			nodes := newTestNodes(b, 2, cfg)
			dialed, accepted := connect(b, nodes[0], nodes[1])
			waiting := []benchPipe{newBenchPipe(b, dialed, accepted), newBenchPipe(b, accepted, dialed)}
			for _, attend := range []string{"throughout", "for each message"} {
				b.Run("polled "+attend, func(b *testing.B) {
					x, y := newPollingReader(b, dialed, accepted), newPollingReader(b, accepted, dialed)
					for _, l := range []*pollingReader{x, y} {
						l.each = attend != "throughout"
						l.r.SetPolling(!l.each)
						defer l.end()
					}
					looking := []benchPipe{{x.write, x.read}, {y.write, y.read}}
					var w, l []time.Duration
					for b.Loop() {
						w = append(w, bounce(b, waiting, rounds)/rounds)
						l = append(l, bounce(b, looking, rounds)/rounds)
					}
					slices.Sort(w)
					slices.Sort(l)
					b.ReportMetric(float64(l[len(l)/2].Nanoseconds()), "ns/look")
					b.ReportMetric(float64(w[len(w)/2].Nanoseconds()), "ns/wait")
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// A pollingReader polls a pipe while a goroutine waits in WaitReadable.
type pollingReader struct {
	s     *sender
	r     *receiver
	each  bool // polling is set only while read runs
	buf   [2 << 10]byte
	group sync.WaitGroup
	over  atomic.Bool
}

func newPollingReader(b *testing.B, from, to *conn) *pollingReader {
	l := &pollingReader{}
	l.s, l.r = pipeBetween(b, from, to)
	l.group.Go(func() {
		for !l.over.Load() {
			l.r.WaitReadable()
		}
	})
	return l
}

func (l *pollingReader) end() {
	l.over.Store(true)
	l.r.Close()
	l.group.Wait()
}

func (l *pollingReader) write(p []byte) error {
	_, err := l.s.Write(p)
	return err
}

// read reads n bytes and then polls once more, as a caller does that does not know the
// length.
func (l *pollingReader) read(n int) error {
	if l.each {
		l.r.SetPolling(true)
		defer l.r.SetPolling(false)
	}
	for got := 0; ; {
		m, err := l.r.TryRead(l.buf[:])
		if err != nil {
			return err
		}
		got += m
		switch {
		case m > 0:
		case got >= n:
			return nil
		default:
			syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}
