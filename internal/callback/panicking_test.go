package callback

import (
	"runtime"
	"testing"
)

func TestPanicking(t *testing.T) {
	var inPanic, nested, inExit, after bool
	note := func(to *bool) { *to = Panicking() }
	func() {
		defer func() {
			defer note(&nested)
			note(&inPanic)
			_ = recover()
		}()
		panic("x")
	}()
	note(&after)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer note(&inExit)
		runtime.Goexit()
	}()
	<-done
	if !inPanic || !nested {
		t.Errorf("during a panic: got %v and %v, want true", inPanic, nested)
	}
	if inExit || after {
		t.Errorf("during runtime.Goexit: got %v, after a panic: %v, want false", inExit, after)
	}
}
