package wire

import (
	"bytes"
	"reflect"
	"testing"
)

var (
	askKind   = kindOf(TypeAsk, (*Ask).Append, ParseAsk)
	waitsKind = kindOf(TypeWaits, func(w *Waits, b []byte) []byte {
		return w.Append(b, bytes.Repeat([]byte{0x78}, w.Length))
	}, ParseWaits)
)

func TestAsk(t *testing.T) {
	checkFrame(t, askKind, &Ask{Epoch: 0x0102030405060708}, "15 0102030405060708")
}

func TestWaits(t *testing.T) {
	checkFrame(t, waitsKind, &Waits{
		Epoch: 3, Rank: 0x91929394, State: 0x0102030405060708, Busy: true, Sent: 0x1112131415161718, Received: 0x2122232425262728, Length: 2,
	}, "16 0000000000000003 91929394 0102030405060708 01 1112131415161718 2122232425262728 00000002 7878")
	checkRefused(t, waitsKind, errTooLong, "16 0000000000000003 91929394 0102030405060708 01 1112131415161718 2122232425262728 00004001")
	checkRefused(t, waitsKind, errValue, "16 0000000000000003 91929394 0102030405060708 02 1112131415161718 2122232425262728 00000000")
}

func someWaits() []Wait {
	return []Wait{
		{Rank: 1, Kind: WaitCollective, Call: aCall(), Tag: 0, For: 7, Peers: []WaitPeer{{Rank: 2, State: 3, Quiet: true}, {Rank: 4}}},
		{Rank: 2, Kind: WaitRecv, Any: true, Call: Call{Comm: 5, Type: 2}, Tag: -1},
	}
}

const someWaitsHex = "00000001 00 00 " + aCallHex + " 0000000000000000 0000000000000007 0002 00000002 0000000000000003 01 00000004 0000000000000000 00" +
	"00000002 02 01 0000000000000005 0000000000000000 00 02 00 00000000 0000000000000000 00 0000 ffffffffffffffff 0000000000000000 0000"

// TestWaitsList: the encoding of a list is stable, can be decoded, and no part of it can.
func TestWaitsList(t *testing.T) {
	want := unhex(t, someWaitsHex)
	b, complete := AppendWaits(nil, someWaits(), WaitsMax)
	if !complete || !bytes.Equal(b, want) {
		t.Errorf("AppendWaits = %x, %v\nwant %x", b, complete, want)
	}
	if got, err := DecodeWaits(want); err != nil || !reflect.DeepEqual(got, someWaits()) {
		t.Errorf("DecodeWaits = %+v, %v", got, err)
	}
	first := waitSize + 2*waitPeerSize
	for n := 1; n < len(want); n++ {
		if _, err := DecodeWaits(want[:n]); err == nil && n != first {
			t.Errorf("%d of %d bytes are decoded", n, len(want))
		}
	}
	if b, complete := AppendWaits(nil, someWaits(), first); complete || !bytes.Equal(b, want[:first]) {
		t.Errorf("with a limit of %d bytes AppendWaits = %d bytes, %v", first, len(b), complete)
	}
	for _, at := range []int{4, 5, first - 1} {
		bad := bytes.Clone(want)
		bad[at] = 9
		if _, err := DecodeWaits(bad); err == nil {
			t.Errorf("a list with the value 9 at %d is decoded", at)
		}
	}
}

// TestWaitsText: the text of a deadlock has as many waits as have room, and is printable.
func TestWaitsText(t *testing.T) {
	text := WaitsText(someWaits())
	if got, err := ParseWaitsText(Escape(text)); err != nil || !reflect.DeepEqual(got, someWaits()) {
		t.Errorf("ParseWaitsText = %+v, %v", got, err)
	}
	long := make([]Wait, 1000)
	text = WaitsText(long)
	if got, err := ParseWaitsText(text); err != nil || len(text) > TextMax || len(got) < 8 {
		t.Errorf("%d of %d waits in %d bytes, %v", len(got), len(long), len(text), err)
	}
	if _, err := ParseWaitsText("not base64!"); err == nil {
		t.Error("a text that is not base64 is decoded")
	}
}

func FuzzDecodeWaits(f *testing.F) {
	f.Add(unhex(f, someWaitsHex))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := DecodeWaits(b)
		if err != nil {
			return
		}
		if again, _ := AppendWaits(nil, list, len(b)); !bytes.Equal(again, b) {
			t.Errorf("%x is encoded as %x", b, again)
		}
	})
}
