package tcp

import "testing"

// TestSubflowsAreBounded: a peer that migrates a pipe again and again, without the subflows before, makes this side keep at most flowsMax of them.
func TestSubflowsAreBounded(t *testing.T) {
	r, kept := new(receiver), 0
	for i := range uint32(10 * flowsMax) {
		if r.attach(&subflow{serial: 3 + 2*i, after: 2 + 2*i}) {
			kept++
		}
	}
	if kept != flowsMax || len(r.parked) != flowsMax {
		t.Errorf("%d subflows are attached and %d wait, want %d", kept, len(r.parked), flowsMax)
	}
}
