package wire

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestResume(t *testing.T) {
	r := Resume{
		Number: 7, From: LinkID{1, 2}, To: LinkID{3, 4}, Received: [2]uint64{5, 1 << 40}, Bulk: 6, Last: 9,
		Grants: []Progress{{8, 10}, {9, 0}},
	}
	want := unhex(t, "0000000000000007 0000000000000001 0000000000000002 0000000000000003 0000000000000004 0000000000000005 0000010000000000 0000000000000006"+
		"0000000000000009 00000002 0000000000000008 000000000000000a 0000000000000009 0000000000000000")
	if got := r.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if n, err := ResumeLength(want[:ResumeSize]); n != len(want) || err != nil {
		t.Errorf("the length is %d (%v), want %d", n, err, len(want))
	}
	if back, err := ParseResume(want); err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("read as %v (%v), want %v", back, err, r)
	}
	if _, err := ParseResume(want[:len(want)-1]); !errors.Is(err, errShort) {
		t.Errorf("cut off: error %v, want %v", err, errShort)
	}
	if _, err := ParseResume(append(want, 0)); !errors.Is(err, errTrailing) {
		t.Errorf("with a byte too many: error %v, want %v", err, errTrailing)
	}
	many := bytes.Clone(want[:ResumeSize])
	copy(many[ResumeSize-4:], []byte{0, 0x10, 0, 1})
	if _, err := ResumeLength(many); !errors.Is(err, errTooLong) {
		t.Errorf("too many grants: error %v, want %v", err, errTooLong)
	}
}
