package wire

import "encoding/binary"

// An Offer announces a message of Size bytes that the receiver must grant. ID is the sender's
// number for it.
type Offer struct {
	Comm uint64
	Tag  int64
	Type uint8 // element type, a kernel.Type
	ID   uint64
	Size uint64
}

// An OfferGrant allows the sender of an [Offer] to send its payload on the bulk
// lane under the number Grant, which is not 0.
type OfferGrant struct {
	Comm, ID, Grant uint64
}

// An OfferRefuse says that the receiver has matched an [Offer] but cannot receive the
// message: its buffer of Room bytes is too small, or has another element type.
type OfferRefuse struct {
	Comm, ID, Room uint64
	Type           uint8
}

// Append appends o to b.
func (o *Offer) Append(b []byte) []byte {
	b = append(b, byte(TypeOffer))
	b = binary.BigEndian.AppendUint64(b, o.Comm)
	b = binary.BigEndian.AppendUint64(b, uint64(o.Tag))
	b = append(b, o.Type)
	b = binary.BigEndian.AppendUint64(b, o.ID)
	return binary.BigEndian.AppendUint64(b, o.Size)
}

// ParseOffer decodes a [TypeOffer] frame.
func ParseOffer(b []byte) (o Offer, err error) {
	d := body(b)
	o.Comm = d.u64()
	o.Tag = int64(d.u64())
	o.Type = d.u8()
	o.ID = d.u64()
	o.Size = d.u64()
	return o, d.finish()
}

// Append appends g to b.
func (g *OfferGrant) Append(b []byte) []byte {
	b = append(b, byte(TypeOfferGrant))
	b = binary.BigEndian.AppendUint64(b, g.Comm)
	b = binary.BigEndian.AppendUint64(b, g.ID)
	return binary.BigEndian.AppendUint64(b, g.Grant)
}

// ParseOfferGrant decodes a [TypeOfferGrant] frame.
func ParseOfferGrant(b []byte) (g OfferGrant, err error) {
	d := body(b)
	g.Comm = d.u64()
	g.ID = d.u64()
	g.Grant = d.u64()
	return g, d.finish()
}

// Append appends r to b.
func (r *OfferRefuse) Append(b []byte) []byte { return appendFrame(b, TypeOfferRefuse, r) }
