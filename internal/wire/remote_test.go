package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// A remoteKind is one type of message of remote calls, with its encoder and decoder. Messages
// are pointers to their structs; the tail follows the fixed fields.
type remoteKind struct {
	typ   RemoteType
	size  int // of the fixed fields
	zero  func() any
	write func(m any, tail []byte) []byte
	parse func(b []byte) (m any, tail []byte, err error)
}

// remoteKinds returns all types of messages.
func remoteKinds() []remoteKind {
	return []remoteKind{remoteCallKind, remoteAnswerKind, remoteCancelKind}
}

func TestRemoteKindsAreComplete(t *testing.T) {
	for i, k := range remoteKinds() {
		if k.typ != RemoteType(i+1) {
			t.Errorf("kind %d is of type %d", i, k.typ)
		}
		if k.size > RemoteHeadMax {
			t.Errorf("type %d has %d bytes, RemoteHeadMax is %d", k.typ, k.size, RemoteHeadMax)
		}
	}
	if got, want := len(remoteKinds()), int(remoteTypeEnd)-1; got != want {
		t.Errorf("%d kinds are tested, there are %d", got, want)
	}
}

func TestRemoteTypeOf(t *testing.T) {
	for _, k := range remoteKinds() {
		if got, err := RemoteTypeOf([]byte{byte(k.typ), 0xff}); err != nil || got != k.typ {
			t.Errorf("RemoteTypeOf(%d …) = %d, %v", k.typ, got, err)
		}
	}
	for _, b := range [][]byte{nil, {}, {0}, {byte(remoteTypeEnd)}, {0xff}} {
		if got, err := RemoteTypeOf(b); err == nil {
			t.Errorf("RemoteTypeOf(%x) = %d, want an error", b, got)
		}
	}
}

// checkRemote requires that m, a pointer, and its tail are encoded as golden, and golden is
// decoded as both. Fewer than least bytes are an error; more have no fixed length.
func checkRemote(t *testing.T, k remoteKind, m any, tail, golden string, least int) {
	t.Helper()
	want := unhex(t, golden)
	if got := k.write(m, unhex(t, tail)); !bytes.Equal(got, want) {
		t.Fatalf("%+v\n is written as %x,\n           want %x", m, got, want)
	}
	back, rest, err := k.parse(want)
	if err != nil || !reflect.DeepEqual(back, m) || !bytes.Equal(rest, unhex(t, tail)) {
		t.Errorf("%x\nis read as %+v and %x (%v),\n    want %+v and %s", want, back, rest, err, m, tail)
	}
	for n := range least {
		if back, _, err := k.parse(want[:n]); !errors.Is(err, errShort) {
			t.Errorf("type %d cut off after %d of %d bytes: %+v, error %v, want %v", k.typ, n, len(want), back, err, errShort)
		}
	}
	for n := least; n < len(want); n++ {
		if back, rest, err := k.parse(want[:n]); err != nil || !bytes.Equal(k.write(back, rest), want[:n]) {
			t.Errorf("type %d cut off after %d of %d bytes: %+v, error %v", k.typ, n, len(want), back, err)
		}
	}
}

// checkRemoteRefused requires that the decoder refuses messages with an error.
func checkRemoteRefused(t *testing.T, k remoteKind, want error, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if got, _, err := k.parse(unhex(t, m)); !errors.Is(err, want) {
			t.Errorf("%s\nis read as %+v, error %v, want %v", m, got, err, want)
		}
	}
}

// Messages of remote calls must not allocate.
func TestRemoteDoesNotAllocate(t *testing.T) {
	b := make([]byte, 0, RemoteHeadMax)
	c := RemoteCall{ID: 1, Remaining: 2, Length: 3}
	a := RemoteAnswer{ID: 1, Status: RemoteDone}
	x := RemoteCancel{ID: 1, Expired: true}
	allocs := testing.AllocsPerRun(100, func() {
		if got, name, _, err := ParseRemoteCall(c.Append(b, "sum")); err != nil || got != c || string(name) != "sum" {
			t.Errorf("got %+v of %q (%v), want %+v", got, name, err, c)
		}
		if got, _, err := ParseRemoteAnswer(a.Append(b)); err != nil || got != a {
			t.Errorf("got %+v (%v), want %+v", got, err, a)
		}
		if got, err := ParseRemoteCancel(x.Append(b)); err != nil || got != x {
			t.Errorf("got %+v (%v), want %+v", got, err, x)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

// FuzzRemote looks for bytes that make a decoder panic, or that it accepts
// although no encoder writes them.
func FuzzRemote(f *testing.F) {
	for _, k := range remoteKinds() {
		f.Add(k.write(k.zero(), nil))
		f.Add(k.write(k.zero(), []byte(strings.Repeat("x", TextMax+1))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		typ, err := RemoteTypeOf(b)
		if err != nil {
			return
		}
		k := remoteKinds()[typ-1]
		m, tail, err := k.parse(b)
		if err != nil {
			return
		}
		if got := k.write(m, tail); !bytes.Equal(got, b) {
			t.Errorf("%+v\nread from %x\nwritten as %x", m, b, got)
		}
	})
}

// remoteCallKind has the name as the first part of the tail, and the arguments as the rest.
var remoteCallKind = remoteKind{
	typ:  TypeRemoteCall,
	size: remoteCallSize,
	zero: func() any { return new(RemoteCall) },
	write: func(m any, tail []byte) []byte {
		c := m.(*RemoteCall)
		n := min(c.Length, len(tail), RemoteNameMax)
		return append(c.Append(nil, string(tail[:n])), tail[n:]...)
	},
	parse: func(b []byte) (any, []byte, error) {
		c, name, args, err := ParseRemoteCall(b)
		return &c, append(append([]byte{}, name...), args...), err
	},
}

func TestRemoteCall(t *testing.T) {
	checkRemote(t, remoteCallKind, &RemoteCall{ID: 0x0102030405060708, Remaining: 0x1112131415161718, Length: 3},
		"73756d a1a2", "01 0102030405060708 1112131415161718 03 73756d a1a2", remoteCallSize+3)
	checkRemote(t, remoteCallKind, &RemoteCall{ID: 1, Length: 1}, "66", "01 0000000000000001 0000000000000000 01 66", remoteCallSize+1)
	longest := strings.Repeat("6e", RemoteNameMax)
	checkRemote(t, remoteCallKind, &RemoteCall{Length: RemoteNameMax}, longest+"00",
		"01 0000000000000000 0000000000000000 ff"+longest+"00", RemoteHeadMax)
	checkRemoteRefused(t, remoteCallKind, errValue,
		"01 0000000000000001 0000000000000000 00",
		"01 0000000000000001 0000000000000000 00 66")
}

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

// The text comes from an error, and may have any length.
func TestRemoteAnswerClipsItsText(t *testing.T) {
	a := RemoteAnswer{Status: RemoteFailed}
	b := a.AppendText(nil, strings.Repeat("x", TextMax-1)+"é")
	if _, text, err := ParseRemoteAnswer(b); err != nil || string(text) != strings.Repeat("x", TextMax-1) {
		t.Errorf("read %d bytes of text (%v), want whole characters, %d bytes", len(text), err, TextMax-1)
	}
}

var remoteCancelKind = remoteKind{
	typ:   TypeRemoteCancel,
	size:  remoteCancelSize,
	zero:  func() any { return new(RemoteCancel) },
	write: func(m any, tail []byte) []byte { return append(m.(*RemoteCancel).Append(nil), tail...) },
	parse: func(b []byte) (any, []byte, error) { c, err := ParseRemoteCancel(b); return &c, nil, err },
}

func TestRemoteCancel(t *testing.T) {
	checkRemote(t, remoteCancelKind, &RemoteCancel{ID: 0x0102030405060708}, "", "03 0102030405060708 00", remoteCancelSize)
	checkRemote(t, remoteCancelKind, &RemoteCancel{ID: 0x0102030405060708, Expired: true}, "", "03 0102030405060708 01", remoteCancelSize)
	checkRemoteRefused(t, remoteCancelKind, errValue, "03 0102030405060708 02", "03 0102030405060708 ff")
	checkRemoteRefused(t, remoteCancelKind, errTrailing, "03 0102030405060708 01 00")
}
