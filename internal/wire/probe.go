package wire

import "encoding/binary"

// A Probe says that its sender has been waiting for the receiver for a while,
// in Call. A receiver that made another call instead knows so by it.
type Probe struct {
	Call Call
}

// A Where answers a Probe for collective Seq: Last is the call that the sender
// of the answer made last on this communicator, with Seq 0 if none, and Active
// whether it is still in it. For is how long it has been in it, or if it is not, how
// long ago that ended, in nanoseconds; 0 if it does not know.
type Where struct {
	Seq    uint64
	Active bool
	For    uint64
	Last   Call
}

const (
	probeSize = 1 + callSize
	whereSize = 1 + 8 + 1 + 8 + callSize
)

// Append adds p to b.
func (p *Probe) Append(b []byte) []byte {
	return p.Call.append(append(b, byte(TypeProbe)))
}

// ParseProbe decodes a TypeProbe frame.
func ParseProbe(b []byte) (p Probe, err error) {
	d := body(b)
	p.Call = d.call()
	return p, d.finish()
}

// Append adds w to b.
func (w *Where) Append(b []byte) []byte {
	b = append(b, byte(TypeWhere))
	b = binary.BigEndian.AppendUint64(b, w.Seq)
	b = append(b, bit(w.Active))
	b = binary.BigEndian.AppendUint64(b, w.For)
	return w.Last.append(b)
}

// ParseWhere decodes a TypeWhere frame.
func ParseWhere(b []byte) (w Where, err error) {
	d := body(b)
	w.Seq = d.u64()
	w.Active = d.flag()
	w.For = d.u64()
	w.Last = d.call()
	return w, d.finish()
}

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func (d *decoder) flag() bool {
	v := d.u8()
	if v > 1 && d.err == nil {
		d.err = errTooLong
	}
	return v == 1
}
