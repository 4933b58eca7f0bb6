package wire

import (
	"strings"
	"testing"
)

var failedKind = kindOf(TypeFailed, func(f *Failed, b []byte) []byte {
	return f.Append(b, strings.Repeat("x", f.Length))
}, ParseFailed)

func TestFailed(t *testing.T) {
	checkFrame(t, failedKind, &Failed{Node: id16(0xee), By: id16(0xdd), Epoch: 3, Closed: true, Length: 2},
		"0e ee0102030405060708090a0b0c0d0eee dd0102030405060708090a0b0c0d0edd 0000000000000003 01 00000002 7878")
	const none = "00000000000000000000000000000000"
	checkFrame(t, failedKind, &Failed{Length: TextMax},
		"0e "+none+none+" 0000000000000000 00 00000400"+strings.Repeat("78", TextMax))
	checkRefused(t, failedKind, errTooLong, "0e "+none+none+" 0000000000000000 00 00000401")
	checkRefused(t, failedKind, errValue, "0e "+none+none+" 0000000000000000 02 00000000")
}

func TestFailedClipsItsText(t *testing.T) {
	var f Failed
	if got := len(f.Append(nil, strings.Repeat("x", 1<<20))) - sizes[TypeFailed]; got != TextMax {
		t.Errorf("%d bytes of text, want %d", got, TextMax)
	}
}
