package wire

// A Bye is the last frame of a lane: its sender closes in good order. A
// ByeAck, always on the control lane, says that everything before the Bye of
// Lane has been read.
type Bye struct {
	Lane Lane
}

const byeSize = 1 + 1

// Append adds y as a frame of type t, TypeBye or TypeByeAck, to b.
func (y *Bye) Append(b []byte, t Type) []byte {
	return append(b, byte(t), byte(y.Lane))
}

// ParseBye decodes a TypeBye or TypeByeAck frame.
func ParseBye(b []byte) (y Bye, err error) {
	d := body(b)
	y.Lane = Lane(d.u8())
	if y.Lane >= Lanes && d.err == nil {
		d.err = errTooLong
	}
	return y, d.finish()
}
