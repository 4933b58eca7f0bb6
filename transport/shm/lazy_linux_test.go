package shm

import (
	"testing"
	"time"
)

// sleepingPipe returns both ends of a pipe whose reader sleeps in WaitReadable, or is about to. woken is closed when it returns.
func sleepingPipe(t *testing.T) (s *sender, r *receiver, woken chan struct{}) {
	t.Helper()
	a, b := newPair(t, Config{})
	s, r = newPipe(t, a, b)
	return s, r, sleepIn(t, r)
}

// sleepIn makes another goroutine sleep in WaitReadable. The channel is closed when it returns.
func sleepIn(t *testing.T, r *receiver) (woken chan struct{}) {
	t.Helper()
	woken = make(chan struct{})
	go func() {
		defer close(woken)
		r.WaitReadable()
	}()
	for end := time.Now().Add(time.Minute); r.asleep.Load() == 0; time.Sleep(10 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("the reader does not go to sleep")
		}
	}
	return woken
}

// TestLazyWritesLetTheReaderSleep: lazy writes leave a sleeping reader asleep until they fill a sixteenth of the ring. Another
// write wakes it before.
func TestLazyWritesLetTheReaderSleep(t *testing.T) {
	p := make([]byte, 9)
	for _, last := range []struct {
		name   string
		before int // lazy writes before
		write  func(s *sender) bool
	}{
		{"a lazy write", ringBytes / 16 / lineBytes, func(s *sender) bool { return s.TryWriteLazy(p) }},
		{"a write", 1, func(s *sender) bool { return s.TryWrite(p) }},
	} {
		t.Run(last.name, func(t *testing.T) {
			slept := false
			for try := 0; try < 100 && !slept; try++ { // A reader may look once more after it has set its flag.
				s, r, woken := sleepingPipe(t)
				for range last.before {
					if !s.TryWriteLazy(p) {
						t.Fatal("TryWriteLazy failed")
					}
				}
				slept = r.asleep.Load() != 0
				if !last.write(s) {
					t.Fatal("the last write failed")
				}
				<-woken
				for i := range last.before + 1 {
					if n, err := r.TryRead(p); n != len(p) || err != nil {
						t.Errorf("TryRead %d: got %d, %v, want %d bytes", i, n, err, len(p))
					}
				}
			}
			if !slept {
				t.Errorf("%d lazy writes always wake the reader", last.before)
			}
		})
	}
}

// TestManyWakeUps: a sleeping reader is woken by each write, whether its eventfd has been read since the last one or not
// (eventsPerRead).
func TestManyWakeUps(t *testing.T) {
	s, r, woken := sleepingPipe(t)
	for i := range 5 * eventsPerRead {
		if !s.TryWrite([]byte{byte(i)}) {
			t.Fatal("TryWrite failed")
		}
		<-woken
		var b [2]byte
		if n, err := r.TryRead(b[:]); n != 1 || b[0] != byte(i) || err != nil {
			t.Fatalf("TryRead %d: got %d bytes %v, %v", i, n, b, err)
		}
		woken = sleepIn(t, r)
	}
	s.Close()
	<-woken
}
