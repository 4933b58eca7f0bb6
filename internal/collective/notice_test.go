//race:none it starts no goroutine

package collective

import (
	"errors"
	"testing"
)

// TestInvalidNotices: a negative length of an encoding, or one above its maximum, is an error
// before anything is allocated for it.
func TestInvalidNotices(t *testing.T) {
	first := &Notice{Elements: 100, Bytes: 10, Room: 20}
	for _, n := range []Notice{{Elements: 100, Bytes: -1 << 40, Room: 20}, {Elements: 100, Bytes: 21, Room: 20}, {Elements: 100, Bytes: -1, Room: -1}} {
		if err := n.Refused(first); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%+v: %v, want ErrTooLarge", n, err)
		}
	}
	if err := first.Refused(first); err != nil {
		t.Error(err)
	}
}
