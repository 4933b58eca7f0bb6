package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// A remoteKind is one type of message of remote calls, with what reads and
// writes it. Messages are passed as pointers to their structs; tail is what
// follows the fixed fields.
type remoteKind struct {
	typ   RemoteType
	size  int // of the fixed fields
	zero  func() any
	write func(m any, tail []byte) []byte
	parse func(b []byte) (m any, tail []byte, err error)
}

// remoteKinds has every type of message.
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

// checkRemote wants m, a pointer, and what follows it to be golden on the
// wire, and golden to be read as both. What is cut off before least bytes is
// truncated; behind them nothing tells how long the message should be.
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

// checkRemoteRefused wants what is no such message to be refused.
func checkRemoteRefused(t *testing.T, k remoteKind, want error, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if got, _, err := k.parse(unhex(t, m)); !errors.Is(err, want) {
			t.Errorf("%s\nis read as %+v, error %v, want %v", m, got, err, want)
		}
	}
}

// Messages of remote calls are read and written for each call.
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

// FuzzRemote looks for bytes that make a parser panic, or that it accepts
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
