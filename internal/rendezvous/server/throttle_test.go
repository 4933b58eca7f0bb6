package server

import (
	"testing"
	"time"
)

func TestThrottle(t *testing.T) {
	var th throttle
	now := time.Unix(1000, 0)
	lines := 0
	for range linesMax + 7 {
		if ok, dropped := th.line(now); ok {
			lines++
			if dropped != 0 {
				t.Errorf("%d dropped before anything was", dropped)
			}
		}
	}
	if lines != linesMax {
		t.Errorf("%d lines in a second, want %d", lines, linesMax)
	}
	if ok, dropped := th.line(now.Add(time.Second)); !ok || dropped != 7 {
		t.Errorf("a second later: %v, %d dropped, want 7", ok, dropped)
	}
	if ok, dropped := th.line(now.Add(time.Second)); !ok || dropped != 0 {
		t.Errorf("then: %v, %d dropped, want none", ok, dropped)
	}
}
