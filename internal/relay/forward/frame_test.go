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
		Kind: forward.Answer, Hops: 3, Salt: 0xa5, Source: relaytest.ID(4), Destination: relaytest.ID(70_000), Payload: make([]byte, 1000),
	}
	b := f.AppendHeader([]byte{1, 2})[2:]
	got, size, err := forward.ParseHeader(b)
	if err != nil || size != 1000 {
		t.Fatalf("payload of %d bytes, %v", size, err)
	}
	got.Payload = f.Payload
	if again := got.AppendHeader(nil); !bytes.Equal(again, b) || got.Kind != f.Kind || got.Hops != f.Hops || got.Salt != f.Salt ||
		got.Source != f.Source || got.Destination != f.Destination {
		t.Errorf("got %+v, want %+v", got, f)
	}
}

func TestBadHeaders(t *testing.T) {
	f := forward.Frame{Kind: forward.Packets}
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
		"empty":        {nil, "header of 0 bytes: expected 37"},
		"short":        {good[:36], "header of 36 bytes"},
		"long":         {append(good, 0), "header of 38 bytes"},
		"no kind":      {change(0, 0), "frame of kind 0: must be 1 to 3"},
		"unknown kind": {change(0, 4), "frame of kind 4"},
		"long payload": {change(35, 0x41), "payload of 16640 bytes: must be at most 16384"},
	} {
		if _, _, err := forward.ParseHeader(test.header); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	frame := forward.Frame{Kind: forward.Packets, Payload: make([]byte, 9)}
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

// The packets of a payload are those that were appended to it.
func TestPackets(t *testing.T) {
	var payload []byte
	lengths := []int{1, 1280, 0, 300, 65_535}
	for i, n := range lengths {
		payload = forward.AppendPacket(payload, bytes.Repeat([]byte{byte(i)}, n))
	}
	for i, n := range lengths {
		var packet []byte
		packet, payload = forward.CutPacket(payload)
		if !bytes.Equal(packet, bytes.Repeat([]byte{byte(i)}, n)) {
			t.Errorf("packet %d has %d bytes, want %d", i, len(packet), n)
		}
	}
	if len(payload) > 0 {
		t.Errorf("%d bytes are left", len(payload))
	}
}

// Whatever a payload is, its packets are parts of it, and its end is reached.
func FuzzCutPacket(f *testing.F) {
	f.Add(forward.AppendPacket(forward.AppendPacket(nil, []byte("one")), nil))
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{255, 255, 1})
	f.Fuzz(func(t *testing.T, payload []byte) {
		var again []byte
		for rest := payload; len(rest) > 0; {
			var packet []byte
			before := len(rest)
			if packet, rest = forward.CutPacket(rest); packet == nil {
				break
			}
			if len(rest) != before-2-len(packet) {
				t.Fatalf("%d of %d bytes are left after a packet of %d", len(rest), before, len(packet))
			}
			again = forward.AppendPacket(again, packet)
		}
		if !bytes.HasPrefix(payload, again) {
			t.Fatal("the packets are no parts of the payload")
		}
	})
}

// The frames of a dialer choose their detours by one bit for each hop, and those of the opposite direction by another one.
func TestReplySalt(t *testing.T) {
	for salt := range 256 {
		reply := forward.ReplySalt(uint8(salt))
		if back := forward.ReplySalt(reply); back != uint8(salt) {
			t.Fatalf("salt %#x: the reply to a reply has salt %#x", salt, back)
		}
		for hop := range uint8(6) {
			there, back := takesDetour(t, uint8(salt), hop), takesDetour(t, reply, hop)
			if want := hop < 4 && salt>>(2*hop)&1 == 1; there != want {
				t.Errorf("salt %#x: a detour after %d hops: %v", salt, hop, there)
			}
			if want := hop < 4 && salt>>(2*hop+1)&1 == 1; back != want {
				t.Errorf("salt %#x: the replies take a detour after %d hops: %v", salt, hop, back)
			}
		}
	}
}

// takesDetour reports whether a node takes the alternative next hop for a frame after some hops.
func takesDetour(t *testing.T, salt, hops uint8) bool {
	t.Helper()
	source, best, other := relaytest.ID(1), relaytest.ID(2), relaytest.ID(3)
	n := newNode(t, relaytest.ID(0), via{best, other}, source, best, other)
	f := forward.Frame{Kind: forward.Packets, Hops: hops, Salt: salt, Source: source, Destination: relaytest.ID(9)}
	o, wake := n.Send(start, f, nil)
	if hops > 0 {
		var err error
		if o, wake, err = n.Receive(start, source, f); err != nil {
			t.Fatal(err)
		}
	}
	if o != forward.Queued || wake != best && wake != other {
		t.Fatalf("the frame is %v for %v", o, wake)
	}
	return wake == other
}
