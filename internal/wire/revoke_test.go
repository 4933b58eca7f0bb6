package wire

import (
	"strings"
	"testing"
)

var revokeKind = kindOf(TypeRevoke, func(r *Revoke, b []byte) []byte {
	return r.Append(b, strings.Repeat("x", r.Length))
}, ParseRevoke)

func TestRevoke(t *testing.T) {
	theirs := aCall()
	theirs.Seq = 0x7172737475767778
	theirsHex := strings.Replace(aCallHex, "1112131415161718", "7172737475767778", 1)
	checkFrame(t, revokeKind, &Revoke{
		Comm: 0x8182838485868788, Cause: CauseMismatch, Rank: 0x91929394, Peer: 0xa1a2a3a4, Ours: aCall(), Theirs: theirs,
	}, "0d 8182838485868788 01 91929394 a1a2a3a4 "+aCallHex+theirsHex+" 00000000")
	none := strings.Repeat("00", len(strings.ReplaceAll(aCallHex, " ", ""))/2)
	checkFrame(t, revokeKind, &Revoke{Comm: 1, Cause: CauseClosed, Rank: 2, Length: 3},
		"0d 0000000000000001 05 00000002 00000000"+none+none+"00000003 787878")
	checkRefused(t, revokeKind, errValue,
		"0d 0000000000000001 00 00000002 00000000"+none+none+"00000000",
		"0d 0000000000000001 06 00000002 00000000"+none+none+"00000000")
	checkRefused(t, revokeKind, errTooLong,
		"0d 0000000000000001 01 00000002 00000000"+none+none+"00000401")
}

// The text comes from errors, of any length.
func TestRevokeClipsItsText(t *testing.T) {
	r := Revoke{Cause: CauseFailed}
	b := r.Append(nil, strings.Repeat("x", TextMax+1))
	if got := len(b) - sizes[TypeRevoke]; got != TextMax {
		t.Errorf("%d bytes of text, want %d", got, TextMax)
	}
	back, err := ParseRevoke(b[:sizes[TypeRevoke]])
	if err != nil || back.Length != TextMax {
		t.Errorf("read a length of %d (%v), want %d", back.Length, err, TextMax)
	}
}
