package wire

// A Ping requests a Pong with the same Number, as a sign of life.
type Ping struct {
	Number uint64
}

// Append appends p as a frame of type t, [TypePing] or [TypePong], to b.
func (p *Ping) Append(b []byte, t Type) []byte { return appendFrame(b, t, p) }

// ParsePing decodes a [TypePing] or [TypePong] frame.
func ParsePing(b []byte) (Ping, error) { return parseFrame[Ping](b) }

// A Query says that its sender has waited for the receiver for some time, in Call. A receiver
// that has made another call in its place detects the mismatch.
type Query struct {
	Call Call
}

// Append appends p to b.
func (p *Query) Append(b []byte) []byte { return appendFrame(b, TypeQuery, p) }

// ParseQuery decodes a [TypeQuery] frame.
func ParseQuery(b []byte) (Query, error) { return parseFrame[Query](b) }

// A Where answers a [Query] for the collective with sequence number Seq.
type Where struct {
	Seq    uint64
	Active bool   // the sender is still in Last
	For    uint64 // nanoseconds since Last began or, if not Active, ended; 0: unknown
	Last   Call   // the latest call of the sender on the communicator; Seq 0: none
}

// Append appends w to b.
func (w *Where) Append(b []byte) []byte { return appendFrame(b, TypeWhere, w) }

// ParseWhere decodes a [TypeWhere] frame.
func ParseWhere(b []byte) (Where, error) { return parseFrame[Where](b) }

// A Cause is the reason why a communicator was revoked.
type Cause uint8

const (
	CauseMismatch  Cause = iota + 1 // ranks made different calls
	CauseCancelled                  // a rank's call was cancelled
	CauseTimeout                    // a rank's call took too long
	CauseFailed                     // a rank has lost Peer
	CauseClosed                     // a rank closed the communicator during a call
	CauseDeadlock                   // ranks wait for each other
	CauseReset                      // frames between a rank and Peer were lost, and both are in the world
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

// ParseRevoke decodes a [TypeRevoke] frame without its text.
func ParseRevoke(b []byte) (Revoke, error) { return parseFrame[Revoke](b) }

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

// ParseFailed decodes a [TypeFailed] frame without its text.
func ParseFailed(b []byte) (Failed, error) { return parseFrame[Failed](b) }

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

// ParseReason decodes a [TypeReason] frame without its text.
func ParseReason(b []byte) (Reason, error) { return parseFrame[Reason](b) }

// A Closed says that its sender has closed the communicator of Last, its latest call there; Seq 0: none. Before is its call before
// Last: in shared memory a rank may be two calls ahead. It is the last frame for that communicator on the data
// lane. Payloads granted before may still follow on the bulk lane.
type Closed struct {
	Last, Before Call
}

// Append appends x to b.
func (x *Closed) Append(b []byte) []byte { return appendFrame(b, TypeClosed, x) }

// ParseClosed decodes a [TypeClosed] frame.
func ParseClosed(b []byte) (Closed, error) { return parseFrame[Closed](b) }

// A Bye is the last frame of a pipe: its sender closes the link. A Bye of the bulk lane on the control
// lane says that the sender has opened no pipe of the bulk lane and will not. A ByeAck, always on the
// control lane, confirms that the receiver has read everything up to the Bye of Lane.
type Bye struct {
	Lane Lane
	// Idle says that the link stays: both sides close only its idle connection. It is false in a ByeAck.
	Idle bool
}

// byeIdle is added to the lane of a Bye if Idle is set.
const byeIdle = 0x80

// Append appends y as a frame of type t, [TypeBye] or [TypeByeAck], to b.
func (y *Bye) Append(b []byte, t Type) []byte {
	lane := byte(y.Lane)
	if y.Idle {
		lane |= byeIdle
	}
	return append(b, byte(t), lane)
}

// ParseBye decodes a [TypeBye] or [TypeByeAck] frame.
func ParseBye(b []byte) (y Bye, err error) {
	d := body(b)
	lane := d.u8()
	y.Lane, y.Idle = Lane(lane&^byeIdle), lane&byeIdle != 0
	switch err := d.finish(); {
	case err != nil:
		return Bye{}, err
	case y.Lane >= Lanes || y.Idle && Type(b[0]) == TypeByeAck:
		return Bye{}, errValue
	}
	return y, nil
}

// A Gone reports that Node has left: its sender, or another node that has told the sender, has
// received the goodbye of Node. Only nodes with links on demand send it, since Node says goodbye
// to the nodes that it is linked to.
type Gone struct {
	Node [16]byte
}

// Append appends g to b.
func (g *Gone) Append(b []byte) []byte { return appendFrame(b, TypeGone, g) }

// ParseGone decodes a [TypeGone] frame.
func ParseGone(b []byte) (Gone, error) { return parseFrame[Gone](b) }

// A Leaving reports that Node leaves and that its peers have read all of its data. Node still relays frames of others, until a
// [Gone] follows. Only nodes of sparse topologies send it.
type Leaving struct {
	Node [16]byte
}

// Append appends f to b.
func (f *Leaving) Append(b []byte) []byte { return appendFrame(b, TypeLeaving, f) }

// ParseLeaving decodes a [TypeLeaving] frame.
func ParseLeaving(b []byte) (Leaving, error) { return parseFrame[Leaving](b) }
