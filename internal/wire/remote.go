package wire

import (
	"encoding/binary"
	"fmt"
)

// A RemoteType is the first byte of a message of a remote call. Such a message is not a
// frame: the carrier delimits it.
type RemoteType uint8

const (
	TypeRemoteCall RemoteType = iota + 1
	TypeRemoteAnswer
	TypeRemoteCancel
	remoteTypeEnd
)

// RemoteNameMax is the maximum length of the name of a function, in bytes.
const RemoteNameMax = 255

// Lengths of the fixed fields of the messages, in bytes, type included.
const (
	remoteCallSize   = 1 + 8 + 8 + 1
	remoteAnswerSize = 1 + 8 + 1 + 8 + 8
	remoteCancelSize = 1 + 8 + 1
)

// RemoteHeadMax is the maximum length of a message of a remote call without its arguments,
// result or text.
const RemoteHeadMax = remoteCallSize + RemoteNameMax

// RemoteTypeOf returns the type of a message of a remote call.
func RemoteTypeOf(b []byte) (RemoteType, error) {
	if len(b) == 0 {
		return 0, errShort
	}
	if t := RemoteType(b[0]); t > 0 && t < remoteTypeEnd {
		return t, nil
	}
	return 0, fmt.Errorf("wire: unknown message type %d of a remote call", b[0])
}

// rest returns the rest of a message.
func (d *decoder) rest() []byte { return d.take(len(d.b)) }

// A RemoteCall asks a rank to call one of its functions. ID is the caller's
// number for the call, used once. Remaining is the time in nanoseconds that the caller
// waits for the answer, 0 for no limit. Length bytes of name follow, at least one, and then
// the arguments up to the end of the message.
type RemoteCall struct {
	ID        uint64
	Remaining uint64
	Length    int
}

// Append appends c and name, of at most RemoteNameMax bytes, to b. The caller appends the
// arguments.
func (c *RemoteCall) Append(b []byte, name string) []byte {
	b = append(b, byte(TypeRemoteCall))
	b = binary.BigEndian.AppendUint64(b, c.ID)
	b = binary.BigEndian.AppendUint64(b, c.Remaining)
	b = append(b, byte(len(name)))
	return append(b, name...)
}

// ParseRemoteCall decodes a [TypeRemoteCall] message. Name and args alias it.
func ParseRemoteCall(b []byte) (c RemoteCall, name, args []byte, err error) {
	d := body(b)
	c.ID = d.u64()
	c.Remaining = d.u64()
	c.Length = int(d.u8())
	name = d.take(c.Length)
	if c.Length == 0 {
		d.fail(errValue)
	}
	args = d.rest()
	return c, name, args, d.finish()
}

// A RemoteStatus is the outcome of a remote call.
type RemoteStatus uint8

const (
	RemoteDone          RemoteStatus = iota + 1 // the function returned: the result follows
	RemoteFailed                                // the function returned an error
	RemotePanicked                              // the function panicked
	RemoteUnknown                               // no function has that name
	RemoteArgsTooLong                           // Size bytes of arguments, at most Max
	RemoteResultTooLong                         // Size bytes of result, at most Max
	RemoteBusy                                  // at most Max calls, with Size bytes of arguments, run at a time
	RemoteEnded                                 // cancelled, or too late
	RemoteRefused                               // the caller refused the result, of Size bytes
	remoteStatusEnd
)

// A RemoteAnswer ends the [RemoteCall] with the same ID. The result follows up to the end of
// the message with RemoteDone, a text with RemoteFailed and RemotePanicked, and nothing with
// another Status.
type RemoteAnswer struct {
	ID        uint64
	Status    RemoteStatus
	Size, Max uint64
}

// Append appends a to b. The caller appends the result.
func (a *RemoteAnswer) Append(b []byte) []byte {
	b = append(b, byte(TypeRemoteAnswer))
	b = binary.BigEndian.AppendUint64(b, a.ID)
	b = append(b, byte(a.Status))
	b = binary.BigEndian.AppendUint64(b, a.Size)
	return binary.BigEndian.AppendUint64(b, a.Max)
}

// AppendText appends a and text, truncated to TextMax bytes, to b.
func (a *RemoteAnswer) AppendText(b []byte, text string) []byte {
	return append(a.Append(b), clip(text)...)
}

// ParseRemoteAnswer decodes a [TypeRemoteAnswer] message. Rest, its result or text, aliases
// it.
func ParseRemoteAnswer(b []byte) (a RemoteAnswer, rest []byte, err error) {
	d := body(b)
	a.ID = d.u64()
	a.Status = RemoteStatus(d.u8())
	a.Size = d.u64()
	a.Max = d.u64()
	if a.Status == 0 || a.Status >= remoteStatusEnd {
		d.fail(errValue)
	}
	switch a.Status {
	case RemoteFailed, RemotePanicked:
		if len(d.b) > TextMax {
			d.fail(errTooLong)
		}
		fallthrough
	case RemoteDone:
		rest = d.rest()
	}
	return a, rest, d.finish()
}

// A RemoteCancel says that the caller of the [RemoteCall] with the same ID no longer waits for
// the answer, because its deadline has passed (Expired) or the caller has cancelled the call.
// The callee still answers.
type RemoteCancel struct {
	ID      uint64
	Expired bool
}

func (x *RemoteCancel) fields(c *codec) {
	c.u64(&x.ID)
	c.flag(&x.Expired)
}

// Append appends x to b.
func (x *RemoteCancel) Append(b []byte) []byte {
	c := encoder(append(b, byte(TypeRemoteCancel)))
	x.fields(&c)
	return c.b
}

// ParseRemoteCancel decodes a [TypeRemoteCancel] message.
func ParseRemoteCancel(b []byte) (x RemoteCancel, err error) {
	c := codec{decoder: body(b)}
	x.fields(&c)
	return x, c.finish()
}
