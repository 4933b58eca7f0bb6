package wire

import "testing"

var (
	stepKind      = kindOf(TypeStep, (*Step).AppendStep, ParseStep)
	stepOfferKind = kindOf(TypeStepOffer, (*Step).AppendOffer, ParseStepOffer)
	stepGrantKind = kindOf(TypeStepGrant, (*Step).AppendGrant, ParseStepGrant)
)

func TestStep(t *testing.T) {
	checkFrame(t, stepKind, &Step{Call: aCall(), Channel: 0x7172, Index: 0x81828384, Length: PayloadMax},
		"03 "+aCallHex+" 7172 81828384 00020000")
	checkRefused(t, stepKind, errTooLong, "03 "+aCallHex+" 7172 81828384 00020001")
}

func TestStepOffer(t *testing.T) {
	checkFrame(t, stepOfferKind, &Step{Call: aCall(), Channel: 0x7172, Index: 0x81828384},
		"04 "+aCallHex+" 7172 81828384")
}

func TestStepGrant(t *testing.T) {
	checkFrame(t, stepGrantKind, &Step{Call: aCall(), Channel: 0x7172, Index: 0x81828384, Grant: 0x9192939495969798},
		"05 "+aCallHex+" 7172 81828384 9192939495969798")
}
