package poll

import "testing"

// TestPace: after long waits polling is tried occasionally; after a successful trial the next
// wait polls as well.
func TestPace(t *testing.T) {
	var p pace
	for i := range 3 {
		if !p.pays() {
			t.Fatalf("wait %d: polling does not pay at the start", i)
		}
		p.succeeded()
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
		t.Errorf("polling was tried %d times in %d long waits, want 10", trials, 10*trialEvery)
	}
	p.succeeded()
	if !p.pays() {
		t.Error("after a successful trial polling does not pay")
	}
	p.learn(waitMax)
	if p.pays() {
		t.Error("after another long wait polling pays")
	}
}
