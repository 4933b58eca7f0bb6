package shm

import (
	"testing"
	"time"
)

// TestPace: waits that are long stop the spinning, and short ones bring it
// back.
func TestPace(t *testing.T) {
	p := newPace()
	if p.spin(spinMax) != spinMax {
		t.Error("does not spin at first")
	}
	learn := func(wait time.Duration, spins bool) (n int) {
		for p.spin(spinMax) > 0 != spins {
			p.learn(wait)
			if n++; n > 100 {
				t.Fatalf("spinning is %v after 100 waits of %v", !spins, wait)
			}
		}
		return n
	}
	if n := learn(time.Second, false); n > 1 {
		t.Errorf("spinning stops after %d long waits, want 1", n)
	}
	p.mean = waitMax
	if n := learn(10*time.Microsecond, true); n > 10 {
		t.Errorf("spinning starts again after %d short waits, want at most 10", n)
	}
	if p.spin(-1) > 0 {
		t.Error("spins with a negative limit")
	}
}

func TestSpinners(t *testing.T) {
	s := spinners{max: 2}
	for i, want := range []bool{true, true, false} {
		if got := s.begin(); got != want {
			t.Errorf("goroutine %d may spin: %v, want %v", i, got, want)
		}
	}
	s.end()
	if !s.begin() {
		t.Error("no goroutine may spin after another has stopped")
	}
}
