package engine

import "testing"

// TestPace: after long waits nobody visits, but for a trial now and then; when that is
// worth it the next one visits, too.
func TestPace(t *testing.T) {
	var p pace
	for i := range 3 {
		if !p.pays() {
			t.Fatalf("wait %d: visits do not pay, from the start", i)
		}
		p.worth()
	}
	for range 10 {
		p.learn(waitMax)
	}
	trials := 0
	for range 10 * trialEvery {
		if p.pays() {
			trials++
		}
		p.learn(waitMax)
	}
	if trials != 10 {
		t.Errorf("%d visits were tried in %d long waits, want 10", trials, 10*trialEvery)
	}
	p.worth()
	if !p.pays() {
		t.Error("after a trial that was worth it visits do not pay")
	}
	p.learn(waitMax)
	if p.pays() {
		t.Error("after another long wait visits pay")
	}
}
