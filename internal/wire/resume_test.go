package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestResume(t *testing.T) {
	r := Resume{Number: 7, Losses: 9, Sent: [Lanes]uint64{1, 2, 3}, Handled: [Lanes]uint64{4, 5, 1 << 40}}
	want := unhex(t, "0000000000000007 0000000000000009 0000000000000001 0000000000000004 0000000000000002 0000000000000005 0000000000000003 0000010000000000")
	if got := r.Append(nil); !bytes.Equal(got, want) || len(got) != ResumeSize {
		t.Errorf("got %x, want %x", got, want)
	}
	if back, err := ParseResume(want); err != nil || back != r {
		t.Errorf("read as %v (%v), want %v", back, err, r)
	}
	if _, err := ParseResume(want[:ResumeSize-1]); !errors.Is(err, errShort) {
		t.Errorf("cut off: error %v, want %v", err, errShort)
	}
	if _, err := ParseResume(append(want, 0)); !errors.Is(err, errTrailing) {
		t.Errorf("with a byte too many: error %v, want %v", err, errTrailing)
	}
}
