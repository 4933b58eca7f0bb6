package wake

import "testing"

// TestSignal: a change ends all waits that began before it, and no wait that begins after it.
func TestSignal(t *testing.T) {
	s := NewSignal()
	first := []<-chan struct{}{s.Next(), s.Next()}
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if isClosed(first[0]) {
		t.Fatal("woken before a change")
	}
	s.Send()
	second := s.Next()
	if !isClosed(first[0]) || !isClosed(first[1]) || isClosed(second) {
		t.Errorf("after a change: woken %v, %v, and for the next one %v", isClosed(first[0]), isClosed(first[1]), isClosed(second))
	}
	if s.Send(); !isClosed(second) {
		t.Error("not woken by the second change")
	}
}
