package wire

import "encoding/binary"

// A RemoteCall asks a rank to call one of its functions. ID is the caller's
// number for the call, which it uses once. Remaining is how many nanoseconds
// it waits for the answer, 0 if it waits for ever. Length bytes of name follow,
// at least one, and then the arguments up to the end of the message.
type RemoteCall struct {
	ID        uint64
	Remaining uint64
	Length    int
}

const remoteCallSize = 1 + 8 + 8 + 1

// Append adds c and name, of at most RemoteNameMax bytes, to b. The arguments
// come behind them.
func (c *RemoteCall) Append(b []byte, name string) []byte {
	b = append(b, byte(TypeRemoteCall))
	b = binary.BigEndian.AppendUint64(b, c.ID)
	b = binary.BigEndian.AppendUint64(b, c.Remaining)
	b = append(b, byte(len(name)))
	return append(b, name...)
}

// ParseRemoteCall decodes a message that is a RemoteCall. Name and args alias
// it.
func ParseRemoteCall(b []byte) (c RemoteCall, name, args []byte, err error) {
	d := body(b)
	c.ID = d.u64()
	c.Remaining = d.u64()
	c.Length = int(d.u8())
	name = d.take(c.Length)
	d.forbid(c.Length == 0)
	args = d.rest()
	return c, name, args, d.finish()
}
