package nexar

import (
	"errors"
	"testing"
)

// TestNoticesThatLie: an encoding with less than no bytes, or more than it may have, is
// refused before anything is allocated for it.
func TestNoticesThatLie(t *testing.T) {
	first := &notice{Elements: 100, Bytes: 10, Room: 20}
	for _, n := range []notice{{Elements: 100, Bytes: -1 << 40, Room: 20}, {Elements: 100, Bytes: 21, Room: 20}, {Elements: 100, Bytes: -1, Room: -1}} {
		if err := n.refused(first); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%+v: %v, want ErrTooLarge", n, err)
		}
	}
	if err := first.refused(first); err != nil {
		t.Error(err)
	}
}
