package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// A kind is one type of frame, with its encoder and decoder. Frames are
// pointers to their structs.
type kind struct {
	typ   Type
	zero  func() any
	write func(frame any, b []byte) []byte
	parse func(b []byte) (any, error)
}

func kindOf[F any](typ Type, write func(*F, []byte) []byte, parse func([]byte) (F, error)) kind {
	return kind{
		typ:   typ,
		zero:  func() any { return new(F) },
		write: func(frame any, b []byte) []byte { return write(frame.(*F), b) },
		parse: func(b []byte) (any, error) { f, err := parse(b); return &f, err },
	}
}

// bareKind returns the kind of a frame without fields.
func bareKind(typ Type) kind {
	return kindOf(typ, func(_ *struct{}, b []byte) []byte { return append(b, byte(typ)) }, func(b []byte) (f struct{}, err error) {
		d := body(b)
		return f, d.finish()
	})
}

// kinds returns all types of frames.
func kinds() []kind {
	return []kind{
		messageKind, offerKind, stepKind, stepOfferKind, stepGrantKind, offerGrantKind, offerRefuseKind,
		creditKind, pingKind, pongKind, queryKind, whereKind, revokeKind, failedKind, byeKind, bareKind(TypeByeAck),
		segmentKind, closedKind, reasonKind, goneKind, askKind, waitsKind, viewKind, keyKind, writtenKind, leavingKind,
		bareKind(TypeBeat), ackKind, finishedKind, idleKind,
	}
}

func TestKindsAreComplete(t *testing.T) {
	for i, k := range kinds() {
		if k.typ != Type(i+1) {
			t.Errorf("kind %d is of type %d", i, k.typ)
		}
	}
	if got, want := len(kinds()), int(typeEnd)-1; got != want {
		t.Errorf("%d kinds are tested, there are %d", got, want)
	}
}

func TestSize(t *testing.T) {
	for _, k := range kinds() {
		b := k.write(k.zero(), nil)
		size, err := Size(k.typ)
		if err != nil || size != len(b) || size > FrameSizeMax {
			t.Errorf("Size(%d) = %d, %v; a frame has %d bytes, FrameSizeMax is %d", k.typ, size, err, len(b), FrameSizeMax)
		}
	}
	for _, typ := range []Type{0, typeEnd, 0xff} {
		if n, err := Size(typ); err == nil {
			t.Errorf("Size(%d) = %d, want an error", typ, n)
		}
	}
}

func TestLaneString(t *testing.T) {
	for lane, want := range map[Lane]string{Control: "control", Data: "data", Bulk: "bulk", Relay: "relay", Relay + 1: "lane(4)"} {
		if got := lane.String(); got != want {
			t.Errorf("Lane(%d).String() = %q, want %q", uint8(lane), got, want)
		}
	}
}

// unhex decodes hexadecimal digits with white space between them.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return b
}

// checkFrame requires that frame, a pointer, is encoded as golden, and golden is decoded as
// frame. Shorter and longer bytes must be refused.
func checkFrame(t *testing.T, k kind, frame any, golden string) {
	t.Helper()
	want := unhex(t, golden)
	got := k.write(frame, []byte("kept"))
	if !bytes.Equal(got, append([]byte("kept"), want...)) {
		t.Fatalf("%+v\n is written as %x,\n           want %x", frame, got, want)
	}
	size, err := Size(k.typ)
	if err != nil || len(want) < size {
		t.Fatalf("Size(%d) = %d, %v; the frame has %d bytes", k.typ, size, err, len(want))
	}
	fixed := want[:size] // The rest is text.
	back, err := k.parse(fixed)
	if err != nil || !reflect.DeepEqual(back, frame) {
		t.Errorf("%x\nis read as %+v (%v),\n    want %+v", fixed, back, err, frame)
	}
	for n := range fixed {
		if back, err := k.parse(fixed[:n]); !errors.Is(err, errShort) {
			t.Errorf("type %d cut off after %d of %d bytes: %+v, error %v, want %v", k.typ, n, size, back, err, errShort)
		}
	}
	if _, err := k.parse(append(bytes.Clone(fixed), 0)); !errors.Is(err, errTrailing) {
		t.Errorf("type %d with a byte too many: error %v, want %v", k.typ, err, errTrailing)
	}
}

// checkRefused requires that the decoder refuses frames with an error.
func checkRefused(t *testing.T, k kind, want error, frames ...string) {
	t.Helper()
	for _, f := range frames {
		if got, err := k.parse(unhex(t, f)); !errors.Is(err, want) {
			t.Errorf("%s\nis read as %+v, error %v, want %v", f, got, err, want)
		}
	}
}

// Frames of the data path must not allocate.
func TestFramesDoNotAllocate(t *testing.T) {
	b := make([]byte, 0, FrameSizeMax)
	s := Step{Call: Call{Comm: 1, Seq: 2}, Index: 3}
	m := Message{Comm: 1, Tag: 2, Length: 3}
	g := Segment{Grant: 1, Length: 2}
	k, w := Key{Grant: 1, Addr: 2, Key: 3, Length: 4}, Written{Grant: 1, Length: 2}
	allocs := testing.AllocsPerRun(100, func() {
		if got, err := ParseStep(s.AppendStep(b)); err != nil || got != s {
			t.Errorf("got %+v (%v), want %+v", got, err, s)
		}
		if got, err := ParseMessage(m.Append(b)); err != nil || got != m {
			t.Errorf("got %+v (%v), want %+v", got, err, m)
		}
		if got, err := ParseSegment(g.Append(b)); err != nil || got != g {
			t.Errorf("got %+v (%v), want %+v", got, err, g)
		}
		if got, err := ParseKey(k.Append(b)); err != nil || got != k {
			t.Errorf("got %+v (%v), want %+v", got, err, k)
		}
		if got, err := ParseWritten(w.Append(b)); err != nil || got != w {
			t.Errorf("got %+v (%v), want %+v", got, err, w)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

// FuzzFrames looks for bytes that make a decoder panic, or that it accepts
// although no encoder writes them.
func FuzzFrames(f *testing.F) {
	for _, k := range kinds() {
		f.Add(k.write(k.zero(), nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		size, err := Size(Type(b[0]))
		if err != nil {
			return
		}
		k := kinds()[b[0]-1]
		frame, err := k.parse(b)
		if err != nil {
			return
		}
		if got := k.write(frame, nil); len(b) != size || !bytes.Equal(got[:size], b) {
			t.Errorf("%+v of %d bytes\nread from %x\nwritten as %x", frame, size, b, got)
		}
	})
}

func BenchmarkStep(b *testing.B) {
	b.ReportAllocs()
	s := Step{Call: Call{Comm: 1, Seq: 2, Count: 3}, Index: 4}
	buf := make([]byte, 0, FrameSizeMax)
	for b.Loop() {
		if _, err := ParseStep(s.AppendStep(buf)); err != nil {
			b.Fatal(err)
		}
	}
}
