package wire

import (
	"strings"
	"testing"
)

var remoteAnswerKind = remoteKind{
	typ:  TypeRemoteAnswer,
	size: remoteAnswerSize,
	zero: func() any { return new(RemoteAnswer) },
	write: func(m any, tail []byte) []byte {
		a := m.(*RemoteAnswer)
		if a.Status == RemoteFailed || a.Status == RemotePanicked {
			return a.AppendText(nil, string(tail))
		}
		return append(a.Append(nil), tail...)
	},
	parse: func(b []byte) (any, []byte, error) {
		a, rest, err := ParseRemoteAnswer(b)
		return &a, rest, err
	},
}

func TestRemoteAnswer(t *testing.T) {
	const id, none = "0102030405060708", "0000000000000000 0000000000000000"
	for status, tail := range map[RemoteStatus]string{RemoteDone: "a1a2a3", RemoteFailed: "6e6f", RemotePanicked: strings.Repeat("78", TextMax)} {
		checkRemote(t, remoteAnswerKind, &RemoteAnswer{ID: 0x0102030405060708, Status: status}, tail,
			"02"+id+hexByte(byte(status))+none+tail, remoteAnswerSize)
	}
	for status := RemoteUnknown; status < remoteStatusEnd; status++ {
		checkRemote(t, remoteAnswerKind, &RemoteAnswer{ID: 0x0102030405060708, Status: status, Size: 0x1112131415161718, Max: 0x2122232425262728},
			"", "02"+id+hexByte(byte(status))+"1112131415161718 2122232425262728", remoteAnswerSize)
		checkRemoteRefused(t, remoteAnswerKind, errTrailing, "02"+id+hexByte(byte(status))+none+"00")
	}
	checkRemoteRefused(t, remoteAnswerKind, errValue,
		"02"+id+"00"+none, "02"+id+hexByte(byte(remoteStatusEnd))+none, "02"+id+"ff"+none)
	checkRemoteRefused(t, remoteAnswerKind, errTooLong,
		"02"+id+"02"+none+strings.Repeat("78", TextMax+1), "02"+id+"03"+none+strings.Repeat("78", TextMax+1))
}

func hexByte(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

// The text comes from errors, of any length.
func TestRemoteAnswerClipsItsText(t *testing.T) {
	a := RemoteAnswer{Status: RemoteFailed}
	b := a.AppendText(nil, strings.Repeat("x", TextMax-1)+"é")
	if _, text, err := ParseRemoteAnswer(b); err != nil || string(text) != strings.Repeat("x", TextMax-1) {
		t.Errorf("read %d bytes of text (%v), want whole characters, %d bytes", len(text), err, TextMax-1)
	}
}
