package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// An Ask requests the calls of the receiver that wait for other ranks. Its sender waits for the
// receiver, or for a rank that does.
type Ask struct {
	Epoch uint64 // of the view of the sender
}

// Append appends a to b.
func (a *Ask) Append(b []byte) []byte { return appendFrame(b, TypeAsk, a) }

// ParseAsk decodes a [TypeAsk] frame.
func ParseAsk(b []byte) (Ask, error) { return parseFrame[Ask](b) }

// Waits answers an [Ask]. Length bytes with the encoding of [AppendWaits] follow.
type Waits struct {
	Epoch uint64 // of the view of the sender
	Rank  uint32 // of the sender in that view
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
	callSize     = 34
)

// AppendWaits appends the encoding of a list to b. It leaves out the waits that exceed limit bytes,
// and reports whether all have room.
func AppendWaits(b []byte, list []Wait, limit int) (_ []byte, complete bool) {
	for i := range list {
		w := &list[i]
		if len(b)+waitSize+len(w.Peers)*waitPeerSize > limit {
			return b, false
		}
		b = binary.BigEndian.AppendUint32(b, w.Rank)
		b = append(b, w.Kind, flagByte(w.Any))
		b = w.Call.append(b)
		b = binary.BigEndian.AppendUint64(b, uint64(w.Tag))
		b = binary.BigEndian.AppendUint64(b, w.For)
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
		w.Any = d.flagBit()
		w.Call = d.call()
		w.Tag, w.For = int64(d.u64()), d.u64()
		n := int(d.u16())
		if n*waitPeerSize > len(d.b) {
			d.fail(errShort)
			break
		}
		for range n {
			w.Peers = append(w.Peers, WaitPeer{Rank: d.u32(), State: d.u64(), Quiet: d.flagBit()})
		}
		list = append(list, w)
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	return list, nil
}

// flagBit takes a byte that is 0 or 1.
func (d *decoder) flagBit() bool {
	v := d.u8()
	if v > 1 {
		d.fail(errValue)
	}
	return v == 1
}

// WaitsText encodes the waits of a deadlock as the text of a [Revoke] with [CauseDeadlock]. It leaves
// out those that have no room.
func WaitsText(list []Wait) string {
	b, _ := AppendWaits(nil, list, base64.RawStdEncoding.DecodedLen(TextMax))
	return base64.RawStdEncoding.EncodeToString(b)
}

// ParseWaitsText decodes the text of a [Revoke] with [CauseDeadlock].
func ParseWaitsText(text string) ([]Wait, error) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.Join(errValue, err)
	}
	return DecodeWaits(b)
}
