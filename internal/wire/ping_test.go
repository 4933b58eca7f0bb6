package wire

import "testing"

var (
	pingKind = kindOf(TypePing, func(p *Ping, b []byte) []byte { return p.Append(b, TypePing) }, ParsePing)
	pongKind = kindOf(TypePong, func(p *Ping, b []byte) []byte { return p.Append(b, TypePong) }, ParsePing)
)

func TestPing(t *testing.T) {
	checkFrame(t, pingKind, &Ping{Number: 0x0102030405060708}, "09 0102030405060708")
	checkFrame(t, pongKind, &Ping{Number: 1<<64 - 1}, "0a ffffffffffffffff")
}
