package tcp

import (
	"testing"
	"time"
)

// TestWaitReadableAfterMigration checks that WaitReadable returns for bytes of the next
// socket when those of the current one were read. Readers do not read again before they
// wait.
func TestWaitReadableAfterMigration(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		from, to := connect(t, nodes[0], nodes[1])
		s, r := pipeBetween(t, from, to)
		const size = 100
		next, expect := counting(), counting()
		write := func() {
			t.Helper()
			if n, err := s.Write(next(size)); n != size || err != nil {
				t.Fatalf("wrote %d bytes of %d, %v", n, size, err)
			}
		}
		buf := make([]byte, viewBytes)
		read := func() (some bool) {
			t.Helper()
			n, err := r.TryRead(buf)
			if n > 0 && string(buf[:n]) != string(expect(size)) || err != nil {
				t.Fatalf("read %d bytes of %d, %v, or other bytes", n, size, err)
			}
			return n > 0
		}
		write()
		old := s.currentFlow()
		eventually(t, "an acknowledgement of all bytes", func() bool { return old.unacked(size) == 0 })
		from.migrate(s)
		eventually(t, "a migration", func() bool { return s.currentFlow() != old && r.hasNext.Load() })
		write()
		eventually(t, "the bytes of the old socket", read)
		awaited := make(chan struct{})
		go func() {
			defer close(awaited)
			r.WaitReadable()
		}()
		select {
		case <-awaited:
		case <-time.After(soon):
			r.Close()
			<-awaited
			t.Fatal("WaitReadable has not returned")
		}
		eventually(t, "the bytes of the new socket", read)
	})
}
