package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
)

// An Ask requests the calls of the receiver that wait for other ranks. Its sender waits for the
// receiver, or for a rank that does.
type Ask struct {
	Epoch  uint64 // of the view of the sender
	Number uint64 // of the question; the answer repeats it
}

// Append appends a to b.
func (a *Ask) Append(b []byte) []byte { return appendFrame(b, TypeAsk, a) }

// ParseAsk decodes a [TypeAsk] frame.
func ParseAsk(b []byte) (Ask, error) { return parseFrame[Ask](b) }

// Waits answers an [Ask]. Length bytes with the encoding of [AppendWaits] follow.
type Waits struct {
	Epoch  uint64 // of the view of the sender
	Number uint64 // of the Ask
	Rank   uint32 // of the sender in that view
	// State is a hash of the number of calls that the sender has begun, of its waits and of their
	// progress. Two answers with the same State were given without a change in between.
	State uint64
	// Busy says that a call of the sender may end without another rank.
	Busy bool
	// Sent and Received count the bytes on the data and bulk lanes of this link.
	Sent, Received uint64
	Length         int `wire:"waits"`
}

// Append appends w and the encoding of a list of waits to b.
func (w *Waits) Append(b, list []byte) []byte {
	f := *w
	f.Length = len(list)
	return append(appendFrame(b, TypeWaits, &f), list...)
}

// ParseWaits decodes a [TypeWaits] frame without its list.
func ParseWaits(b []byte) (Waits, error) { return parseFrame[Waits](b) }

// WaitsMax is the maximum length of an encoded list of waits.
const WaitsMax = 16 << 10

// The kinds of waits.
const (
	WaitCollective uint8 = iota
	WaitSend
	WaitRecv
	WaitProbe
	waitEnd
)

// A Wait is a call in progress that waits for other ranks. Ranks are those of the view.
type Wait struct {
	Rank uint32 // that waits
	Kind uint8  // WaitCollective, WaitSend, WaitRecv or WaitProbe
	// Any says that each of Peers alone can end the wait. Otherwise all of them are needed.
	Any bool
	// Call is the fingerprint of a collective. Of a message it has the communicator, the type and,
	// as Count, the bytes of a send.
	Call  Call
	Tag   int64  // of a message; -1: any
	For   uint64 // nanoseconds
	Peers []WaitPeer
	// Ranges has the ranks of a receive or probe from any rank, or of a call that waits for the next view,
	// ascending, in place of Peers. Each of them
	// alone can end the wait. Rank may be among them. States is the sum of the [StateDigest] of the others, and
	// Quiet says that each of them is quiet, as in [WaitPeer].
	Ranges []RankRange
	States uint64
	Quiet  bool
}

// A RankRange is the ranks from First to Last.
type RankRange struct{ First, Last uint32 }

// StateDigest mixes a rank and its State to a summand of Wait.States, by the finalizer of splitmix64. Sums of digests are equal
// if the states are, and almost certainly differ otherwise.
func StateDigest(rank uint32, state uint64) uint64 {
	x := state + (uint64(rank)+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A WaitPeer is a rank that another one waits for.
type WaitPeer struct {
	Rank uint32
	// State is that of the last answer of the rank to the waiting one; see [Waits].
	State uint64
	// Quiet says that nothing was in flight between the two ranks after that answer.
	Quiet bool
}

const (
	waitSize     = 4 + 1 + 1 + callSize + 8 + 8 + 2
	waitPeerSize = 4 + 8 + 1
	statesSize   = 8 + 1
	rangeSize    = 4 + 4
	callSize     = 34
)

// The values of the field Needs in the encoding of a wait.
const (
	needsAll    = iota // of Peers
	needsAny           // of Peers
	needsRanges        // any of Ranges
	needsEnd
)

func (w *Wait) needs() byte {
	switch {
	case w.Any && w.Ranges != nil:
		return needsRanges
	case w.Any:
		return needsAny
	}
	return needsAll
}

func (w *Wait) size() int {
	if w.needs() == needsRanges {
		return waitSize + statesSize + len(w.Ranges)*rangeSize
	}
	return waitSize + len(w.Peers)*waitPeerSize
}

// AppendWaits appends the encoding of a list to b. It leaves out the waits that exceed limit bytes,
// and reports whether all have room.
func AppendWaits(b []byte, list []Wait, limit int) (_ []byte, complete bool) {
	for i := range list {
		w := &list[i]
		if len(b)+w.size() > limit {
			return b, false
		}
		b = binary.BigEndian.AppendUint32(b, w.Rank)
		b = append(b, w.Kind, w.needs())
		b = w.Call.append(b)
		b = binary.BigEndian.AppendUint64(b, uint64(w.Tag))
		b = binary.BigEndian.AppendUint64(b, w.For)
		if w.needs() == needsRanges {
			b = binary.BigEndian.AppendUint16(b, uint16(len(w.Ranges)))
			b = binary.BigEndian.AppendUint64(b, w.States)
			b = append(b, flagByte(w.Quiet))
			for _, r := range w.Ranges {
				b = binary.BigEndian.AppendUint32(b, r.First)
				b = binary.BigEndian.AppendUint32(b, r.Last)
			}
			continue
		}
		b = binary.BigEndian.AppendUint16(b, uint16(len(w.Peers)))
		for _, p := range w.Peers {
			b = binary.BigEndian.AppendUint32(b, p.Rank)
			b = binary.BigEndian.AppendUint64(b, p.State)
			b = append(b, flagByte(p.Quiet))
		}
	}
	return b, true
}

func flagByte(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// DecodeWaits decodes a list that AppendWaits has encoded.
func DecodeWaits(b []byte) (list []Wait, err error) {
	d := decoder{b: b}
	for len(d.b) > 0 && d.err == nil {
		w := Wait{Rank: d.u32(), Kind: d.u8()}
		if w.Kind >= waitEnd {
			d.fail(errValue)
		}
		needs := d.u8()
		if needs >= needsEnd {
			d.fail(errValue)
		}
		w.Any = needs != needsAll
		w.Call = d.call()
		w.Tag, w.For = int64(d.u64()), d.u64()
		n := int(d.u16())
		if needs == needsRanges {
			d.ranges(&w, n)
		} else {
			d.peers(&w, n)
		}
		list = append(list, w)
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	return list, nil
}

// peers takes n peers of a wait.
func (d *decoder) peers(w *Wait, n int) {
	if n*waitPeerSize > len(d.b) {
		d.fail(errShort)
		return
	}
	for range n {
		w.Peers = append(w.Peers, WaitPeer{Rank: d.u32(), State: d.u64(), Quiet: d.flagBit()})
	}
}

// ranges takes the states and the n ranges of a wait. Ranges are in order, and do not overlap.
func (d *decoder) ranges(w *Wait, n int) {
	w.States, w.Quiet = d.u64(), d.flagBit()
	if n*rangeSize > len(d.b) {
		d.fail(errShort)
		return
	}
	w.Ranges = make([]RankRange, n)
	for i := range w.Ranges {
		r := RankRange{d.u32(), d.u32()}
		if r.First > r.Last || i > 0 && r.First <= w.Ranges[i-1].Last {
			d.fail(errValue)
		}
		w.Ranges[i] = r
	}
}

// flagBit takes a byte that is 0 or 1.
func (d *decoder) flagBit() bool {
	v := d.u8()
	if v > 1 {
		d.fail(errValue)
	}
	return v == 1
}

// WaitsText encodes the waits of a deadlock of a number of ranks as the text of a [Revoke] with
// [CauseDeadlock]. It leaves out those that have no room.
func WaitsText(ranks int, list []Wait) string {
	b, _ := AppendWaits(binary.BigEndian.AppendUint32(nil, uint32(ranks)), list, base64.RawStdEncoding.DecodedLen(TextMax))
	return base64.RawStdEncoding.EncodeToString(b)
}

// ParseWaitsText decodes the text of a [Revoke] with [CauseDeadlock].
func ParseWaitsText(text string) (ranks int, list []Wait, err error) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return 0, nil, errors.Join(errValue, err)
	}
	if len(b) < 4 {
		return 0, nil, errShort
	}
	if list, err = DecodeWaits(b[4:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) < uint64(len(list)) || n > math.MaxInt32 {
		return 0, nil, errValue
	}
	return int(n), list, nil
}
