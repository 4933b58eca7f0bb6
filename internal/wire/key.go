package wire

import "encoding/binary"

// A Key lets the peer write the payload of a grant directly into the memory of the receiver, with the WriteRemote
// of the transport (transport.RemoteMemory). It is sent before the grant on the same lane.
// The peer may use it, or send [Segment] frames.
type Key struct {
	Grant  uint64
	Addr   uint64 // the fields of a transport.RemoteKey
	Key    uint64
	Length uint64
}

// Append appends k to b.
func (k *Key) Append(b []byte) []byte {
	b = append(b, byte(TypeKey))
	b = binary.BigEndian.AppendUint64(b, k.Grant)
	b = binary.BigEndian.AppendUint64(b, k.Addr)
	b = binary.BigEndian.AppendUint64(b, k.Key)
	return binary.BigEndian.AppendUint64(b, k.Length)
}

// ParseKey decodes a [TypeKey] frame.
func ParseKey(b []byte) (Key, error) {
	d := body(b)
	k := Key{Grant: d.u64(), Addr: d.u64(), Key: d.u64(), Length: d.u64()}
	return k, d.finish()
}

// A Written reports that Length bytes of a transfer, from byte Offset on, are in the memory of the receiver.
type Written struct {
	Grant  uint64
	Offset uint64
	Length int
}

// Append appends w to b.
func (w *Written) Append(b []byte) []byte {
	b = append(b, byte(TypeWritten))
	b = binary.BigEndian.AppendUint64(b, w.Grant)
	b = binary.BigEndian.AppendUint64(b, w.Offset)
	return binary.BigEndian.AppendUint32(b, uint32(w.Length))
}

// ParseWritten decodes a [TypeWritten] frame.
func ParseWritten(b []byte) (Written, error) {
	d := body(b)
	w := Written{Grant: d.u64(), Offset: d.u64(), Length: d.length(SegmentMax)}
	return w, d.finish()
}
