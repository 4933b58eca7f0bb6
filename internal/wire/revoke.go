package wire

import "encoding/binary"

// A Cause says why a communicator was revoked.
type Cause uint8

const (
	CauseMismatch  Cause = iota + 1 // ranks made different calls
	CauseCancelled                  // a rank's call was cancelled
	CauseTimeout                    // a rank's call took too long
	CauseFailed                     // a rank's call needed one that has left
	CauseClosed                     // a rank closed the communicator during a call
	causeEnd
)

// A Revoke ends a communicator on all its ranks. The call of Rank has failed. With CauseMismatch Ours is the call of Rank,
// and Theirs the call of Peer that did not agree with it. With CauseFailed
// Peer has left. Length bytes of text follow.
type Revoke struct {
	Comm         uint64
	Cause        Cause
	Rank, Peer   uint32
	Ours, Theirs Call
	Length       int
}

const revokeSize = 1 + 8 + 1 + 4 + 4 + 2*callSize + 4

// Append adds r and text, clipped to TextMax bytes, to b.
func (r *Revoke) Append(b []byte, text string) []byte {
	text = clip(text)
	b = append(b, byte(TypeRevoke))
	b = binary.BigEndian.AppendUint64(b, r.Comm)
	b = append(b, byte(r.Cause))
	b = binary.BigEndian.AppendUint32(b, r.Rank)
	b = binary.BigEndian.AppendUint32(b, r.Peer)
	b = r.Ours.append(b)
	b = r.Theirs.append(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// ParseRevoke decodes the fixed part of a TypeRevoke frame.
func ParseRevoke(b []byte) (r Revoke, err error) {
	d := body(b)
	r.Comm = d.u64()
	r.Cause = Cause(d.u8())
	r.Rank = d.u32()
	r.Peer = d.u32()
	r.Ours = d.call()
	r.Theirs = d.call()
	r.Length = d.length(TextMax)
	if (r.Cause == 0 || r.Cause >= causeEnd) && d.err == nil {
		d.err = errTooLong
	}
	return r, d.finish()
}
