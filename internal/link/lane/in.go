package lane

// ackBytes is the number of bytes behind the last acknowledgement that makes one due.
const ackBytes = 256 << 10

// An In is the receiving half of a lane.
type In struct {
	received uint64 // bytes of whole frames that were handled
	stated   uint64 // of them, those that the peer was told of
}

// Handled notes that a numbered frame of n bytes was handled.
func (i *In) Handled(n int) { i.received += uint64(n) }

// Received returns the position up to which all frames were handled.
func (i *In) Received() uint64 { return i.received }

// Due reports whether an acknowledgement is due even if no other frame is sent.
func (i *In) Due() bool { return i.received-i.stated >= ackBytes }

// IsStated reports whether the peer was told of all frames.
func (i *In) IsStated() bool { return i.received == i.stated }

// State returns the position for an acknowledgement or an opening that is sent now.
func (i *In) State() uint64 {
	i.stated = i.received
	return i.received
}
