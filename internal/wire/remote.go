package wire

import (
	"errors"
	"fmt"
)

// A RemoteType is the first byte of a message of a remote call. These are
// whole messages, which end where they end, and no frames.
type RemoteType uint8

const (
	TypeRemoteCall RemoteType = iota + 1
	TypeRemoteAnswer
	TypeRemoteCancel
	remoteTypeEnd
)

// RemoteNameMax is the longest name of a function, in bytes.
const RemoteNameMax = 255

// RemoteHeadMax is how many bytes a message of a remote call has at the most
// besides arguments, a result or a text.
const RemoteHeadMax = remoteCallSize + RemoteNameMax

// errRemoteValue says that a field of a message has a value that no encoder
// writes.
var errRemoteValue = errors.New("wire: field of a remote call has a forbidden value")

// RemoteTypeOf is the type of a message of a remote call.
func RemoteTypeOf(b []byte) (RemoteType, error) {
	if len(b) == 0 {
		return 0, errShort
	}
	if t := RemoteType(b[0]); t > 0 && t < remoteTypeEnd {
		return t, nil
	}
	return 0, fmt.Errorf("wire: unknown message type %d of a remote call", b[0])
}

// forbid keeps an error if a value is not one that an encoder writes.
func (d *decoder) forbid(wrong bool) {
	if wrong && d.err == nil {
		d.err = errRemoteValue
	}
}

// rest takes all that is left.
func (d *decoder) rest() []byte { return d.take(len(d.b)) }
