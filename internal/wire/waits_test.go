package wire

import (
	"bytes"
	"reflect"
	"testing"
)

var (
	askKind   = kindOf(TypeAsk, (*Ask).Append, Parse[Ask])
	waitsKind = kindOf(TypeWaits, func(w *Waits, b []byte) []byte {
		return w.Append(b, bytes.Repeat([]byte{0x78}, w.Length))
	}, Parse[Waits])
)

func TestAsk(t *testing.T) {
	checkFrame(t, askKind, &Ask{Epoch: 0x0102030405060708, Number: 0x3132333435363738, Sites: true}, "15 0102030405060708 3132333435363738 01")
}

func TestWaits(t *testing.T) {
	checkFrame(t, waitsKind, &Waits{
		Epoch: 3, Number: 4, Rank: 0x91929394, State: 0x0102030405060708, Busy: true, Sent: 0x1112131415161718, Received: 0x2122232425262728, First: 0x31323334, Length: 2,
	}, "16 0000000000000003 0000000000000004 91929394 0102030405060708 01 1112131415161718 2122232425262728 31323334 00000002 7878")
	checkRefused(t, waitsKind, errTooLong, "16 0000000000000003 0000000000000004 91929394 0102030405060708 01 1112131415161718 2122232425262728 31323334 00004001")
	checkRefused(t, waitsKind, errValue, "16 0000000000000003 0000000000000004 91929394 0102030405060708 02 1112131415161718 2122232425262728 31323334 00000000")
}

func someWaits() []Wait {
	return []Wait{
		{Rank: 1, Kind: WaitCollective, Call: aCall(), Tag: 0, For: 7, Peers: []WaitPeer{{Rank: 2, State: 3, Quiet: true}, {Rank: 4}}},
		{Rank: 2, Kind: WaitRecv, Any: true, Call: Call{Comm: 5, Type: 2}, Tag: -1, Site: "a:1"},
		{Rank: 2, Kind: WaitProbe, Any: true, Ranges: []RankRange{{0, 0x0304}, {0x0306, 0x0306}}, States: 0x4142434445464748, Quiet: true},
	}
}

const someWaitsHex = "00000001 00 00 " + aCallHex + " 0000000000000000 0000000000000007 0000 0002 00000002 0000000000000003 01 00000004 0000000000000000 00" +
	"00000002 02 01 0000000000000005 0000000000000000 00 02 00 00000000 0000000000000000 00 0000 ffffffffffffffff 0000000000000000 0003 613a31 0000" +
	"00000002 03 02 0000000000000000 0000000000000000 00 00 00 00000000 0000000000000000 00 0000 0000000000000000 0000000000000000 0000 0002" +
	"4142434445464748 01 00000000 00000304 00000306 00000306"

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
	second := first + waitSize + len("a:1")
	for n := 1; n < len(want); n++ {
		if _, err := DecodeWaits(want[:n]); err == nil && n != first && n != second {
			t.Errorf("%d of %d bytes are decoded", n, len(want))
		}
	}
	if b, complete := AppendWaits(nil, someWaits(), first); complete || !bytes.Equal(b, want[:first]) {
		t.Errorf("with a limit of %d bytes AppendWaits = %d bytes, %v", first, len(b), complete)
	}
	for _, at := range []int{4, 5, first - 1, second + waitSize + statesSize - 1, len(want) - 8, len(want) - 12} {
		bad := bytes.Clone(want)
		bad[at] = 9
		if _, err := DecodeWaits(bad); err == nil {
			t.Errorf("a list with the value 9 at %d is decoded", at)
		}
	}
}

// TestWaitsFromAnyRank: a receive from any of many ranks has one entry.
func TestWaitsFromAnyRank(t *testing.T) {
	const ranks = 100_000
	list := []Wait{{Rank: 7, Kind: WaitRecv, Any: true, Tag: -1, Ranges: []RankRange{{0, ranks - 1}}}}
	b, complete := AppendWaits(nil, list, WaitsMax)
	if want := waitSize + statesSize + rangeSize; !complete || len(b) != want {
		t.Errorf("%d ranks need %d bytes, complete: %v; want %d bytes", ranks, len(b), complete, want)
	}
	if got, err := DecodeWaits(b); err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("DecodeWaits = %+v, %v", got, err)
	}
}

// TestStateDigest: sums of digests differ if two ranks exchange their states, or one has another state.
func TestStateDigest(t *testing.T) {
	sum := func(states ...uint64) (s uint64) {
		for rank, state := range states {
			s += StateDigest(uint32(rank), state)
		}
		return s
	}
	if got := StateDigest(0, 0); got != 0xe220a8397b1dcdaf {
		t.Errorf("StateDigest(0, 0) = %#x", got)
	}
	if sum(1, 2, 3) == sum(2, 1, 3) || sum(1, 2, 3) == sum(1, 2, 4) {
		t.Error("digests of other states are equal")
	}
}

// TestWaitsText: the text of a deadlock has the number of ranks, as many waits as have room, and is printable.
func TestWaitsText(t *testing.T) {
	text := WaitsText(9, someWaits())
	if n, got, err := ParseWaitsText(Escape(text)); err != nil || n != 9 || !reflect.DeepEqual(got, someWaits()) {
		t.Errorf("ParseWaitsText = %d, %+v, %v", n, got, err)
	}
	long := make([]Wait, 1000)
	for i := range long {
		long[i] = Wait{Any: i%2 == 0, Peers: []WaitPeer{{Rank: 1}}}
	}
	text = WaitsText(len(long), long)
	if n, got, err := ParseWaitsText(text); err != nil || len(text) > TextMax || n != len(long) || len(got) < 10 {
		t.Errorf("%d ranks, %d of %d waits in %d bytes, %v; want at least 10", n, len(got), len(long), len(text), err)
	}
	if _, _, err := ParseWaitsText(WaitsText(1, someWaits())); err == nil {
		t.Error("a text with more waits than ranks is decoded")
	}
	if _, _, err := ParseWaitsText("AAA"); err == nil {
		t.Error("a text without a number of ranks is decoded")
	}
	if _, _, err := ParseWaitsText("not base64!"); err == nil {
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
