package wire

import "encoding/binary"

// A RemoteStatus says how a remote call ended.
type RemoteStatus uint8

const (
	RemoteDone          RemoteStatus = iota + 1 // well: the result follows
	RemoteFailed                                // the function returned an error
	RemotePanicked                              // the function panicked
	RemoteUnknown                               // no function has that name
	RemoteArgsTooLong                           // Size bytes of arguments, at most Max
	RemoteResultTooLong                         // Size bytes of result, at most Max
	RemoteBusy                                  // Max calls, with Size bytes of arguments, are taken at a time
	RemoteEnded                                 // cancelled, or too late
	RemoteRefused                               // the caller refused the result, of Size bytes
	remoteStatusEnd
)

// A RemoteAnswer ends the RemoteCall with the same ID. Up to the end of the
// message follow the result, with RemoteDone, or a text, with RemoteFailed and
// RemotePanicked, or nothing.
type RemoteAnswer struct {
	ID        uint64
	Status    RemoteStatus
	Size, Max uint64
}

const remoteAnswerSize = 1 + 8 + 1 + 8 + 8

// Append adds a to b. The result comes behind it.
func (a *RemoteAnswer) Append(b []byte) []byte {
	b = append(b, byte(TypeRemoteAnswer))
	b = binary.BigEndian.AppendUint64(b, a.ID)
	b = append(b, byte(a.Status))
	b = binary.BigEndian.AppendUint64(b, a.Size)
	return binary.BigEndian.AppendUint64(b, a.Max)
}

// AppendText adds a and text, clipped to TextMax bytes, to b.
func (a *RemoteAnswer) AppendText(b []byte, text string) []byte {
	return append(a.Append(b), clip(text)...)
}

// ParseRemoteAnswer decodes a message that is a RemoteAnswer. The rest of the message
// aliases it.
func ParseRemoteAnswer(b []byte) (a RemoteAnswer, rest []byte, err error) {
	d := body(b)
	a.ID = d.u64()
	a.Status = RemoteStatus(d.u8())
	a.Size = d.u64()
	a.Max = d.u64()
	d.forbid(a.Status == 0 || a.Status >= remoteStatusEnd)
	switch a.Status {
	case RemoteDone:
		rest = d.rest()
	case RemoteFailed, RemotePanicked:
		if len(d.b) > TextMax && d.err == nil {
			d.err = errTooLong
		}
		rest = d.rest()
	}
	return a, rest, d.finish()
}
