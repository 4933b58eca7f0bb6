package wire

import "encoding/binary"

// A RemoteCancel says that nobody waits any more for the answer to the
// RemoteCall with the same ID, be it that its time has passed (Expired) or that
// the caller has lost interest. The answer comes all the same.
type RemoteCancel struct {
	ID      uint64
	Expired bool
}

const remoteCancelSize = 1 + 8 + 1

// Append adds c to b.
func (c *RemoteCancel) Append(b []byte) []byte {
	b = append(b, byte(TypeRemoteCancel))
	b = binary.BigEndian.AppendUint64(b, c.ID)
	return append(b, bit(c.Expired))
}

// ParseRemoteCancel decodes a message that is a RemoteCancel.
func ParseRemoteCancel(b []byte) (c RemoteCancel, err error) {
	d := body(b)
	c.ID = d.u64()
	c.Expired = d.flag()
	return c, d.finish()
}
