package wire

import "encoding/binary"

// A Ping requests a Pong with the same Number, as a sign of life.
type Ping struct {
	Number uint64
}

// Append appends p as a frame of type t, [TypePing] or [TypePong], to b.
func (p *Ping) Append(b []byte, t Type) []byte { return appendFrame(b, t, p) }

// A Query says that its sender has waited for the receiver for some time, in Call. A receiver
// that has made another call in its place detects the mismatch.
type Query struct {
	Call Call
}

// Append appends p to b.
func (p *Query) Append(b []byte) []byte { return appendFrame(b, TypeQuery, p) }

// A Where answers a [Query] for the collective with sequence number Seq.
type Where struct {
	Seq    uint64
	Active bool   // the sender is still in Last
	For    uint64 // nanoseconds since Last began or, if not Active, ended; 0: unknown
	Last   Call   // the latest call of the sender on the communicator; Seq 0: none
}

// Append appends w to b.
func (w *Where) Append(b []byte) []byte { return appendFrame(b, TypeWhere, w) }

// A Cause is the reason why a communicator was revoked.
type Cause uint8

const (
	CauseMismatch  Cause = iota + 1 // ranks made different calls
	CauseCancelled                  // a rank's call was cancelled
	CauseTimeout                    // a rank's call took too long
	CauseFailed                     // a rank has lost Peer
	CauseClosed                     // a rank closed the communicator during a call
	CauseDeadlock                   // ranks wait for each other
	CauseLeft                       // a rank's call needed Peer, which has left
	CauseRemoved                    // the seed has removed the receiver from the world
	CauseExcluded                   // the program of Rank has removed the receiver from the world
	causeEnd
)

// A Revoke ends a communicator on all its ranks, because the call of Rank has failed. With
// CauseMismatch, Ours is the call of Rank and Theirs the different call of Peer. Length bytes of text, the reason, follow; with
// CauseDeadlock they are those of [WaitsText], and the sender need not be a rank of the communicator. CauseRemoved and CauseExcluded
// end it on the receiver alone, which the others continue without.
type Revoke struct {
	Comm         uint64
	Cause        Cause
	Rank, Peer   uint32
	Ours, Theirs Call
	Length       int
}

// Append appends r and text, truncated to TextMax bytes, to b.
func (r Revoke) Append(b []byte, text string) []byte {
	text = clip(text)
	r.Length = len(text)
	return append(appendFrame(b, TypeRevoke, &r), text...)
}

// A Failed reports that the node By has lost its link to Node in the view with Epoch. Its
// sender is By, or a node that relays the report. Length bytes of text, the reason, follow.
type Failed struct {
	Node, By [16]byte
	Epoch    uint64
	// Closed says that Node has closed the link without a goodbye. Node may be alive, and
	// may report that it has lost By.
	Closed bool
	Length int
}

// Append appends f and text, truncated to TextMax bytes, to b.
func (f Failed) Append(b []byte, text string) []byte {
	text = clip(text)
	f.Length = len(text)
	return append(appendFrame(b, TypeFailed, &f), text...)
}

// A Reason says that an operation of its sender has failed because of Node, before the program of
// the sender gets the error. If the program ends by it, Node is the cause, not the sender. Length
// bytes of text, the error, follow.
type Reason struct {
	Node [16]byte
	// Lost says that the sender has lost Node. Otherwise Node has left, or has ended the operation.
	Lost   bool
	Length int
}

// Append appends r and text, truncated to TextMax bytes, to b.
func (r Reason) Append(b []byte, text string) []byte {
	text = clip(text)
	r.Length = len(text)
	return append(appendFrame(b, TypeReason, &r), text...)
}

// A Closed says that its sender has closed the communicator of Last, its latest call there; Seq 0: none. Before is its call before
// Last: in shared memory a rank may be two calls ahead. It is the last frame for that communicator on the data
// lane. Payloads granted before may still follow on the bulk lane.
type Closed struct {
	Last, Before Call
}

// Append appends x to b.
func (x *Closed) Append(b []byte) []byte { return appendFrame(b, TypeClosed, x) }

// A Bye says that its sender leaves, and sends nothing more that needs an answer: the peer has read everything when it has read
// this frame, the first Data bytes of numbered frames on the data lane, and Bulk bytes of payload on the bulk lane. Then it sends a
// TypeByeAck. Bulk is 0 unless the connection lasts: otherwise the peer has acknowledged all payloads before.
type Bye struct {
	Data, Bulk uint64
}

// Append appends y to b.
func (y *Bye) Append(b []byte) []byte { return appendFrame(b, TypeBye, y) }

// An Ack says that its sender has received, and handled, numbered frames of Control and Data bytes on the two lanes. It
// is the answer to many frames.
type Ack struct {
	Control, Data uint64
}

// Append appends a to b.
func (a *Ack) Append(b []byte) []byte {
	b = append(b, byte(TypeAck))
	b = binary.BigEndian.AppendUint64(b, a.Control)
	return binary.BigEndian.AppendUint64(b, a.Data)
}

// ParseAck decodes a [TypeAck] frame.
func ParseAck(b []byte) (Ack, error) {
	d := body(b)
	a := Ack{Control: d.u64(), Data: d.u64()}
	return a, d.finish()
}

// An Idle asks the peer to close the connection, which its sender does not need. Nothing is lost if both have read everything: its sender has
// received the frames of an [Ack], and has sent SentData bytes on the data lane.
type Idle struct {
	Control, Data, SentData uint64
}

// Append appends i to b.
func (i *Idle) Append(b []byte) []byte { return appendFrame(b, TypeIdle, i) }

// A Finished says that Grant is filled or withdrawn.
type Finished struct {
	Grant uint64
}

// Append appends f to b.
func (f *Finished) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(append(b, byte(TypeFinished)), f.Grant)
}

// ParseFinished decodes a [TypeFinished] frame.
func ParseFinished(b []byte) (Finished, error) {
	d := body(b)
	f := Finished{Grant: d.u64()}
	return f, d.finish()
}

// A Gone reports that Node has left: its sender, or another node that has told the sender, has
// received the goodbye of Node. Only nodes with links on demand send it, since Node says goodbye
// to the nodes that it is linked to.
type Gone struct {
	Node [16]byte
}

// Append appends g to b.
func (g *Gone) Append(b []byte) []byte { return appendFrame(b, TypeGone, g) }

// A Leaving reports that Node leaves and that its peers have read all of its data. Node still relays frames of others, until a
// [Gone] follows. Only nodes of sparse topologies send it.
type Leaving struct {
	Node [16]byte
}

// Append appends f to b.
func (f *Leaving) Append(b []byte) []byte { return appendFrame(b, TypeLeaving, f) }
