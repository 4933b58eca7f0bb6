package seed

import (
	"slices"
	"testing"
)

func TestOutbox(t *testing.T) {
	o := newOutbox()
	o.post([]byte("a"))
	o.post([]byte("b"))
	if frames, last := o.take(); last || len(frames) != 2 {
		t.Errorf("%q, last %v", frames, last)
	}
	o.close([]byte("c"))
	o.post([]byte("too late"))
	o.close([]byte("twice"))
	frames, last := o.take()
	if !last || !slices.EqualFunc(frames, []string{"c"}, func(b []byte, s string) bool { return string(b) == s }) {
		t.Errorf("%q, last %v", frames, last)
	}
	if len(o.wake) != 1 {
		t.Error("nobody is woken")
	}
}
