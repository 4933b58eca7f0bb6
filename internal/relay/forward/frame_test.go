package forward_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
)

func TestFrameCodec(t *testing.T) {
	f := forward.Frame{
		Hops: 3, Attempt: 9, Kind: forward.Data, Source: relaytest.ID(4), Destination: relaytest.ID(70_000),
		Session: 1<<63 + 5, Seq: 1<<40 + 7, Payload: make([]byte, 1000),
	}
	b := f.AppendHeader(nil)
	if size, err := forward.Size(b[0]); size != len(b) || err != nil {
		t.Errorf("Size: %d, %v, want %d", size, err, len(b))
	}
	got, payload, err := forward.ParseHeader(b)
	if err != nil || payload != 1000 {
		t.Fatalf("payload of %d bytes, %v", payload, err)
	}
	if again := got.AppendHeader(nil); !bytes.Equal(again[:52], b[:52]) || got.Source != f.Source || got.Seq != f.Seq || got.Session != f.Session {
		t.Errorf("got %+v, want %+v", got, f)
	}
	c := forward.Credit{Class: 7, Bytes: 1 << 17}
	if got, err := forward.ParseCredit(c.Append(nil)); got != c || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, c)
	}
}

func TestBadFrames(t *testing.T) {
	f := forward.Frame{Kind: forward.Data}
	good := f.AppendHeader(nil)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, test := range map[string]struct {
		header []byte
		want   string
	}{
		"empty":        {nil, "expected a frame header"},
		"short":        {good[:20], "expected a frame header"},
		"another type": {change(0, 9), "expected a frame header"},
		"no kind":      {change(3, 0), "frame of kind 0: must be 1 to 5"},
		"unknown kind": {change(3, 6), "frame of kind 6"},
		"long payload": {change(52, 1), "must be at most"},
	} {
		if _, _, err := forward.ParseHeader(test.header); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	if _, err := forward.Size(3); err == nil {
		t.Error("Size of an unknown type succeeds")
	}
	if _, err := forward.ParseCredit([]byte{2, 1}); err == nil {
		t.Error("a short credit is accepted")
	}
}

func FuzzParseHeader(f *testing.F) {
	frame := forward.Frame{Kind: forward.Ack, Payload: make([]byte, 9)}
	f.Add(frame.AppendHeader(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, size, err := forward.ParseHeader(b)
		if err != nil {
			return
		}
		if size > forward.PayloadMax {
			t.Fatalf("payload of %d bytes", size)
		}
		got.Payload = make([]byte, size)
		if !bytes.Equal(got.AppendHeader(nil), b) {
			t.Fatal("the header changes when it is decoded and encoded")
		}
	})
}
