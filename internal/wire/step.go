package wire

import "encoding/binary"

// A Step is message number Index, from 0, from its sender to its receiver in one channel of a
// collective. On the data lane Length bytes of payload follow.
//
// A StepOffer asks the receiver to grant a Step if the sender has no credit. A StepGrant allows
// the sender to send a Step on the bulk lane under the number Grant.
type Step struct {
	Call    Call
	Channel uint16
	Index   uint32
	Length  int    // TypeStep only
	Grant   uint64 // TypeStepGrant only
}

func (s *Step) append(b []byte, t Type) []byte {
	b = append(b, byte(t))
	b = s.Call.append(b)
	b = binary.BigEndian.AppendUint16(b, s.Channel)
	return binary.BigEndian.AppendUint32(b, s.Index)
}

// AppendStep appends s as a [TypeStep] frame to b. The caller sends the payload after it.
func (s *Step) AppendStep(b []byte) []byte {
	b = s.append(b, TypeStep)
	return binary.BigEndian.AppendUint32(b, uint32(s.Length))
}

// AppendOffer appends s as a [TypeStepOffer] frame to b.
func (s *Step) AppendOffer(b []byte) []byte { return s.append(b, TypeStepOffer) }

// AppendGrant appends s as a [TypeStepGrant] frame to b.
func (s *Step) AppendGrant(b []byte) []byte {
	b = s.append(b, TypeStepGrant)
	return binary.BigEndian.AppendUint64(b, s.Grant)
}

func (d *decoder) step() (s Step) {
	s.Call = d.call()
	s.Channel = d.u16()
	s.Index = d.u32()
	return s
}

// ParseStep decodes a [TypeStep] frame.
func ParseStep(b []byte) (Step, error) {
	d := body(b)
	s := d.step()
	s.Length = d.length(PayloadMax)
	return s, d.finish()
}

// ParseStepOffer decodes a [TypeStepOffer] frame.
func ParseStepOffer(b []byte) (Step, error) {
	d := body(b)
	s := d.step()
	return s, d.finish()
}

// ParseStepGrant decodes a [TypeStepGrant] frame.
func ParseStepGrant(b []byte) (Step, error) {
	d := body(b)
	s := d.step()
	s.Grant = d.u64()
	return s, d.finish()
}
