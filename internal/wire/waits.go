package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// An Ask requests the calls of the receiver that wait for other ranks. Its sender waits for the
// receiver, or for a rank that does.
type Ask struct {
	Epoch  uint64 // of the view of the sender
	Number uint64 // of the question; the answer repeats it
	Sites  bool   // the answer has the places of the calls in the program
}

// Append appends a to b.
func (a *Ask) Append(b []byte) []byte { return appendFrame(b, TypeAsk, a) }

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
	// First is the lowest rank that has asked the sender in the last few seconds, and that may report its wait.
	First  uint32
	Length int `wire:"waits"`
}

// Append appends w and the encoding of a list of waits to b.
func (w Waits) Append(b, list []byte) []byte {
	w.Length = len(list)
	return append(appendFrame(b, TypeWaits, &w), list...)
}

// WaitsMax is the maximum length of an encoded list of waits.
const WaitsMax = 16 << 10

// The kinds of waits.
const (
	WaitCollective uint8 = iota
	WaitSend
	WaitRecv
	WaitProbe
	// WaitNone is no call: the program has been in none since For, and its main goroutine is at Site.
	WaitNone
	waitEnd
)

// A Wait is a call in progress that waits for other ranks. Ranks are those of the view.
type Wait struct {
	Rank uint32 // that waits
	Kind uint8  // WaitCollective, WaitSend, WaitRecv, WaitProbe or WaitNone
	// Any says that each of Peers alone can end the wait. Otherwise all of them are needed.
	Any bool
	// Call is the fingerprint of a collective. Of a message it has the communicator, the type and,
	// as Count, the bytes of a send.
	Call  Call
	Tag   int64  // of a message; -1: any
	For   uint64 // nanoseconds
	Site  string // of the call in the program: "train/main.go:42", at most SiteMax bytes; empty: unknown
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
	waitSize     = 4 + 1 + 1 + callSize + 8 + 8 + 2 + 2
	waitPeerSize = 4 + 8 + 1
	statesSize   = 8 + 1
	rangeSize    = 4 + 4
	callSize     = 34
)

// SiteMax is the maximum length of Wait.Site.
const SiteMax = 128

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
		return waitSize + len(w.Site) + statesSize + len(w.Ranges)*rangeSize
	}
	return waitSize + len(w.Site) + len(w.Peers)*waitPeerSize
}

// wait encodes or decodes a wait.
func (c *codec) wait(w *Wait) {
	tag, needs := uint64(w.Tag), w.needs()
	c.u32(&w.Rank)
	c.enum(&w.Kind, 0, waitEnd-1)
	c.enum(&needs, 0, needsEnd-1)
	c.call(&w.Call)
	c.u64(&tag)
	c.u64(&w.For)
	c.name(&w.Site, SiteMax)
	w.Tag, w.Any = int64(tag), needs != needsAll
	if needs != needsRanges {
		n := uint16(len(w.Peers))
		c.u16(&n)
		elements(c, &w.Peers, uint64(n), waitPeerSize, func(p *WaitPeer) {
			c.u32(&p.Rank)
			c.u64(&p.State)
			c.flag(&p.Quiet)
		})
		return
	}
	n := uint16(len(w.Ranges))
	c.u16(&n)
	c.u64(&w.States)
	c.flag(&w.Quiet)
	if !c.encoding {
		w.Ranges = []RankRange{}
	}
	next := uint64(0) // Ranges are in order, and do not overlap.
	elements(c, &w.Ranges, uint64(n), rangeSize, func(r *RankRange) {
		c.u32(&r.First)
		c.u32(&r.Last)
		if r.First > r.Last || uint64(r.First) < next {
			c.fail(errValue)
		}
		next = uint64(r.Last) + 1
	})
}

// AppendWaits appends the encoding of a list to b. It leaves out the waits that exceed limit bytes,
// and reports whether all have room.
func AppendWaits(b []byte, list []Wait, limit int) (_ []byte, complete bool) {
	c := encoder(b)
	for _, w := range list {
		if len(c.b)+w.size() > limit {
			return c.b, false
		}
		c.wait(&w)
	}
	return c.b, true
}

// DecodeWaits decodes a list that AppendWaits has encoded.
func DecodeWaits(b []byte) (list []Wait, err error) {
	c := codec{decoder: decoder{b: b}}
	for len(c.b) > 0 && c.err == nil {
		var w Wait
		c.wait(&w)
		list = append(list, w)
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	return list, nil
}

// WaitsText encodes the waits of a deadlock of a number of ranks as the text of a [Revoke] with
// [CauseDeadlock]. It leaves out the sites if not all have room, and then the waits that have none.
func WaitsText(ranks int, list []Wait) string {
	b, complete := AppendWaits(binary.BigEndian.AppendUint32(nil, uint32(ranks)), list, base64.RawStdEncoding.DecodedLen(TextMax))
	if !complete {
		list = slices.Clone(list)
		for i := range list {
			list[i].Site = ""
		}
		b, _ = AppendWaits(b[:4], list, base64.RawStdEncoding.DecodedLen(TextMax))
	}
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
