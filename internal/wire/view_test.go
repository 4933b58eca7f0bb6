package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
)

var viewKind = kindOf(TypeView, func(v *View, b []byte) []byte {
	return v.Append(b, bytes.Repeat([]byte{0x78}, v.Length))
}, Parse[View])

func TestView(t *testing.T) {
	checkFrame(t, viewKind, &View{Length: 2}, "17 00000002 7878")
	checkRefused(t, viewKind, errTooLong, "17 00010001")
}

// TestViewMessages: a node accepts from another one only messages about views, whole and alone.
func TestViewMessages(t *testing.T) {
	for _, m := range []JoinMessage{joinDifferences[1], joinConfirms[1], joinBehinds[0]} {
		b := encodeJoin(t, m)
		if _, err := DecodeViewMessage(b); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if _, err := DecodeViewMessage(b[:len(b)-1]); err == nil {
			t.Errorf("%T is decoded without its last byte", m)
		}
		if _, err := DecodeViewMessage(append(b, 0)); !errors.Is(err, errTrailing) {
			t.Errorf("%T with a byte too many: error %v, want %v", m, err, errTrailing)
		}
	}
	for _, m := range []JoinMessage{JoinView{Epoch: 1}, JoinFailed{Text: "x"}, JoinLeave{}} {
		if _, err := DecodeViewMessage(encodeJoin(t, m)); !errors.Is(err, errUnknownType) {
			t.Errorf("%T: error %v, want %v", m, err, errUnknownType)
		}
	}
}

var joinDifferences = []JoinMessage{
	JoinDifference{Base: 1, Epoch: 2, Signature: []byte{1}},
	JoinDifference{
		Base: 1 << 40, Epoch: 1<<40 + 2, Gone: []uint32{0, 7}, Hash: membership.Hash{1, 2, 3}, Signature: []byte{0x30, 1, 2},
		Joined: []membership.Node{{ID: id16(1), Addrs: []string{"10.0.0.1:7000"}, Host: "a", Name: "a:1", Endpoints: []membership.Endpoint{{Transport: "quic"}}}},
	},
}

func TestJoinDifference(t *testing.T) {
	for _, m := range joinDifferences {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinDifference{Signature: make([]byte, signatureBytesMax+1)})
}

func FuzzJoinDifference(f *testing.F) { fuzzJoin(f, joinDifferences...) }

var joinConfirms = []JoinMessage{JoinConfirm{Epoch: 2}, JoinConfirm{Epoch: 1 << 63, Missing: []uint32{1, 1<<32 - 1}}}

func TestJoinConfirm(t *testing.T) {
	for _, m := range joinConfirms {
		checkJoinMessage(t, m)
	}
	// The decoder checks the number of ranks before it allocates.
	fields := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}
	if _, err := parseJoin(joinType(JoinConfirm{}), fields); !errors.Is(err, errShort) {
		t.Errorf("error %v, want %v", err, errShort)
	}
}

func FuzzJoinConfirm(f *testing.F) { fuzzJoin(f, joinConfirms...) }

var joinBehinds = []JoinMessage{JoinBehind{Epoch: 1}, JoinBehind{Epoch: 1 << 63}}

func TestJoinBehind(t *testing.T) {
	for _, m := range joinBehinds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinBehind(f *testing.F) { fuzzJoin(f, joinBehinds...) }
