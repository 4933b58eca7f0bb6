package wire

import (
	"strings"
	"testing"
)

var (
	pingKind = kindOf(TypePing, func(p *Ping, b []byte) []byte { return p.Append(b, TypePing) }, Parse[Ping])
	pongKind = kindOf(TypePong, func(p *Ping, b []byte) []byte { return p.Append(b, TypePong) }, Parse[Ping])
)

func TestPing(t *testing.T) {
	checkFrame(t, pingKind, &Ping{Number: 0x0102030405060708}, "09 0102030405060708")
	checkFrame(t, pongKind, &Ping{Number: 1<<64 - 1}, "0a ffffffffffffffff")
}

var (
	queryKind = kindOf(TypeQuery, (*Query).Append, Parse[Query])
	whereKind = kindOf(TypeWhere, (*Where).Append, Parse[Where])
)

func TestQuery(t *testing.T) {
	checkFrame(t, queryKind, &Query{Call: aCall()}, "0b "+aCallHex)
}

func TestWhere(t *testing.T) {
	checkFrame(t, whereKind, &Where{Seq: 0x7172737475767778, Last: aCall()}, "0c 7172737475767778 00 0000000000000000 "+aCallHex)
	checkFrame(t, whereKind, &Where{Seq: 0x7172737475767778, Active: true, For: 0x8182838485868788, Last: aCall()}, "0c 7172737475767778 01 8182838485868788 "+aCallHex)
	checkRefused(t, whereKind, errValue, "0c 7172737475767778 02 0000000000000000 "+aCallHex)
}

var revokeKind = kindOf(TypeRevoke, func(r *Revoke, b []byte) []byte {
	return r.Append(b, strings.Repeat("x", r.Length))
}, Parse[Revoke])

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
	for cause, number := range map[Cause]string{CauseFailed: "04", CauseLeft: "07", CauseRemoved: "08", CauseExcluded: "09"} {
		checkFrame(t, revokeKind, &Revoke{Comm: 1, Cause: cause, Rank: 2, Peer: 3}, "0d 0000000000000001 "+number+" 00000002 00000003"+none+none+"00000000")
	}
	checkRefused(t, revokeKind, errValue,
		"0d 0000000000000001 00 00000002 00000000"+none+none+"00000000",
		"0d 0000000000000001 0a 00000002 00000000"+none+none+"00000000")
	checkRefused(t, revokeKind, errTooLong,
		"0d 0000000000000001 01 00000002 00000000"+none+none+"00000401")
}

// The text comes from an error, and may have any length.
func TestRevokeClipsItsText(t *testing.T) {
	r := Revoke{Cause: CauseFailed}
	b := r.Append(nil, strings.Repeat("x", TextMax+1))
	if got := len(b) - sizes[TypeRevoke]; got != TextMax {
		t.Errorf("%d bytes of text, want %d", got, TextMax)
	}
	back, err := Parse[Revoke](b[:sizes[TypeRevoke]])
	if err != nil || back.Length != TextMax {
		t.Errorf("read a length of %d (%v), want %d", back.Length, err, TextMax)
	}
}

var failedKind = kindOf(TypeFailed, func(f *Failed, b []byte) []byte {
	return f.Append(b, strings.Repeat("x", f.Length))
}, Parse[Failed])

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

var reasonKind = kindOf(TypeReason, func(r *Reason, b []byte) []byte {
	return r.Append(b, strings.Repeat("x", r.Length))
}, Parse[Reason])

func TestReason(t *testing.T) {
	checkFrame(t, reasonKind, &Reason{Node: id16(0xee), Lost: true, Length: 2}, "13 ee0102030405060708090a0b0c0d0eee 01 00000002 7878")
	const none = "00000000000000000000000000000000"
	checkFrame(t, reasonKind, &Reason{Length: TextMax}, "13 "+none+" 00 00000400"+strings.Repeat("78", TextMax))
	checkRefused(t, reasonKind, errTooLong, "13 "+none+" 00 00000401")
}

var goneKind = kindOf(TypeGone, (*Gone).Append, Parse[Gone])

func TestGone(t *testing.T) {
	checkFrame(t, goneKind, &Gone{Node: id16(0xee)}, "14 ee0102030405060708090a0b0c0d0eee")
}

var leavingKind = kindOf(TypeLeaving, (*Leaving).Append, Parse[Leaving])

func TestLeaving(t *testing.T) {
	checkFrame(t, leavingKind, &Leaving{Node: id16(0xee)}, "1a ee0102030405060708090a0b0c0d0eee")
}

var closedKind = kindOf(TypeClosed, (*Closed).Append, Parse[Closed])

func TestClosed(t *testing.T) {
	before := aCall()
	before.Seq--
	checkFrame(t, closedKind, &Closed{Last: aCall(), Before: before},
		"12 "+aCallHex+strings.Replace(aCallHex, "1112131415161718", "1112131415161717", 1))
}

var (
	byeKind      = kindOf(TypeBye, (*Bye).Append, Parse[Bye])
	ackKind      = kindOf(TypeAck, (*Ack).Append, ParseAck)
	idleKind     = kindOf(TypeIdle, (*Idle).Append, Parse[Idle])
	finishedKind = kindOf(TypeFinished, (*Finished).Append, ParseFinished)
)

func TestBye(t *testing.T) {
	checkFrame(t, byeKind, &Bye{Data: 0x0102030405060708, Bulk: 9}, "0f 0102030405060708 0000000000000009")
	checkFrame(t, ackKind, &Ack{Control: 1, Data: 1 << 40}, "1c 0000000000000001 0000010000000000")
	checkFrame(t, finishedKind, &Finished{Grant: 7}, "1d 0000000000000007")
	checkFrame(t, idleKind, &Idle{Control: 1, Data: 2, SentData: 3}, "1e 0000000000000001 0000000000000002 0000000000000003")
}
