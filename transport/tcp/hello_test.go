package tcp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// readers returns functions that decode each message of a socket and encode it again.
func readers() map[string]func(r io.Reader) ([]byte, error) {
	return map[string]func(r io.Reader) ([]byte, error){
		"greeting":  func(r io.Reader) ([]byte, error) { g, err := readGreeting(r); return g.append(nil), err },
		"claim":     func(r io.Reader) ([]byte, error) { c, err := readClaim(r); return c.append(nil), err },
		"challenge": func(r io.Reader) ([]byte, error) { c, err := readChallenge(r); return c.append(nil), err },
		"message": func(r io.Reader) ([]byte, error) {
			m, err := readMessage(r, new([messageBytes]byte))
			return m.append(nil), err
		},
	}
}

func said() map[string][]byte {
	return map[string][]byte{
		"greeting":  greeting{plain: true, pipesMax: 64}.append(nil),
		"claim":     claim{connID{1}, 7, nonce{2}}.append(nil),
		"challenge": challenge{nonce{3}, proof{4}}.append(nil),
		"message":   message{msgEnd, 7, 1 << 40}.append(nil),
	}
}

func TestRoundTrip(t *testing.T) {
	for name, read := range readers() {
		b := said()[name]
		if got, err := read(bytes.NewReader(b)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s %x is read as %x, %v", name, b, got, err)
		}
		for n := range b {
			if _, err := read(bytes.NewReader(b[:n])); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s cut after %d bytes: %v", name, n, err)
			}
		}
	}
}

func FuzzHello(f *testing.F) {
	for _, b := range said() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, read := range readers() {
			got, err := read(bytes.NewReader(b))
			if err == nil && !bytes.Equal(got, b[:len(got)]) {
				t.Errorf("%s %x is read as %x", name, b, got)
			}
		}
	})
}

// TestProof checks that a proof depends on all its inputs and on its role.
func TestProof(t *testing.T) {
	base := prover{key: [32]byte{1}, claim: claim{connID{2}, 4, nonce{3}}, nonce: nonce{4}, session: []byte("session")}
	if !base.mac(roleDial).equal(base.mac(roleDial)) {
		t.Error("a proof differs from itself")
	}
	if base.mac(roleDial).equal(base.mac(roleAccept)) {
		t.Error("both sides make the same proof")
	}
	for name, change := range map[string]func(p *prover){
		"key":           func(p *prover) { p.key[31]++ },
		"conn":          func(p *prover) { p.claim.conn[0]++ },
		"pipe":          func(p *prover) { p.claim.pipe++ },
		"dialed nonce":  func(p *prover) { p.claim.nonce[15]++ },
		"answer nonce":  func(p *prover) { p.nonce[15]++ },
		"session":       func(p *prover) { p.session = []byte("another") },
		"no TLS at all": func(p *prover) { p.session = nil },
	} {
		other := base
		change(&other)
		if base.mac(roleDial).equal(other.mac(roleDial)) || base.mac(roleAccept).equal(other.mac(roleAccept)) {
			t.Errorf("the proof does not depend on: %s", name)
		}
	}
}

// TestMagic checks that the magics differ from each other, and in the first byte from
// those of watches on a shared port.
func TestMagic(t *testing.T) {
	for _, magic := range []string{magicControl, magicTLS, magicPlain} {
		if len(magic) != magicBytes || strings.HasPrefix(magic, "n") {
			t.Errorf("a socket may not begin with %q", magic)
		}
	}
}
