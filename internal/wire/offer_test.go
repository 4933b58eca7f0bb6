package wire

import "testing"

var (
	offerKind       = kindOf(TypeOffer, (*Offer).Append, ParseOffer)
	offerGrantKind  = kindOf(TypeOfferGrant, (*OfferGrant).Append, ParseOfferGrant)
	offerRefuseKind = kindOf(TypeOfferRefuse, (*OfferRefuse).Append, Parse[OfferRefuse])
)

func TestOffer(t *testing.T) {
	checkFrame(t, offerKind, &Offer{Comm: 0x0102030405060708, Tag: -1, Type: 9, ID: 0x2122232425262728, Size: 1<<64 - 1},
		"02 0102030405060708 ffffffffffffffff 09 2122232425262728 ffffffffffffffff")
}

func TestOfferGrant(t *testing.T) {
	checkFrame(t, offerGrantKind, &OfferGrant{Comm: 0x0102030405060708, ID: 0x1112131415161718, Grant: 0x2122232425262728},
		"06 0102030405060708 1112131415161718 2122232425262728")
}

func TestOfferRefuse(t *testing.T) {
	checkFrame(t, offerRefuseKind, &OfferRefuse{Comm: 0x0102030405060708, ID: 0x1112131415161718, Room: 0x2122232425262728, Type: 9},
		"07 0102030405060708 1112131415161718 2122232425262728 09")
}
