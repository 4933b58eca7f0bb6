package tcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Every socket begins with eight bytes in the clear that say what it is for.
// None of them may begin as a watch of transport/quic does, with which this
// transport can share its port.
const (
	magicBytes   = 8
	magicControl = "tnexar1c" // TLS follows, and a Conn
	magicTLS     = "tnexar1t" // TLS follows, and a pipe
	magicPlain   = "tnexar1p" // a pipe in the clear
	magicMigrate = "tnexar1m" // a pipe goes on that had another socket
)

// A greeting is what both sides of a control socket say first, the one that
// accepted it before the other: the one that dialed has then heard whether its
// certificate is accepted, and Dial can be given up until it answers.
type greeting struct {
	plain    bool
	pipesMax uint32 // how many pipes the other side may have open
}

const greetingBytes = 5

func (g greeting) append(b []byte) []byte {
	mode := byte('t')
	if g.plain {
		mode = 'p'
	}
	return binary.BigEndian.AppendUint32(append(b, mode), g.pipesMax)
}

func readGreeting(r io.Reader) (g greeting, err error) {
	var b [greetingBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return g, err
	}
	g.plain, g.pipesMax = b[0] == 'p', binary.BigEndian.Uint32(b[1:])
	if b[0] != 'p' && b[0] != 't' || g.pipesMax == 0 {
		return g, errors.New("its greeting makes no sense")
	}
	return g, nil
}

// agree says what is wrong if the two sides differ in Plain.
func (g greeting) agree(peers greeting) error {
	if g.plain == peers.plain {
		return nil
	}
	return fmt.Errorf("this side has Plain = %v, the peer has Plain = %v: both must be set alike", g.plain, peers.plain)
}

type connID [16]byte

// keys are what the two ends of a control socket know and nobody else does.
type keys struct {
	id    connID // finds the Conn at the side that accepted it
	proof [32]byte
}

const (
	labelConn = "EXPORTER-nexar-tcp"
	labelPipe = "EXPORTER-nexar-tcp-pipe"
)

func deriveKeys(state tls.ConnectionState) (k keys, err error) {
	secret, err := state.ExportKeyingMaterial(labelConn, nil, len(k.id)+len(k.proof))
	if err != nil {
		return k, err
	}
	copy(k.proof[:], secret[copy(k.id[:], secret):])
	return k, nil
}

type nonce [16]byte

// A claim is what the side that dials a socket says first on it: the pipe of
// which Conn it is to be.
type claim struct {
	conn  connID
	pipe  uint32
	nonce nonce
}

const claimBytes = 16 + 4 + 16

func (c claim) append(b []byte) []byte {
	b = append(b, c.conn[:]...)
	b = binary.BigEndian.AppendUint32(b, c.pipe)
	return append(b, c.nonce[:]...)
}

func readClaim(r io.Reader) (c claim, err error) {
	var b [claimBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return c, err
	}
	rest := b[copy(c.conn[:], b[:]):]
	c.pipe = binary.BigEndian.Uint32(rest)
	copy(c.nonce[:], rest[4:])
	return c, nil
}

type proof [sha256.Size]byte

// A challenge is the answer to a claim. It proves that the one who answers
// has the key of the Conn, and asks the other for the same proof.
type challenge struct {
	nonce nonce
	proof proof
}

const challengeBytes = 16 + sha256.Size

func (c challenge) append(b []byte) []byte { return append(append(b, c.nonce[:]...), c.proof[:]...) }

func readChallenge(r io.Reader) (c challenge, err error) {
	var b [challengeBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return c, err
	}
	copy(c.proof[:], b[copy(c.nonce[:], b[:]):])
	return c, nil
}

// After the proofs each side says yes once: the one that accepted the socket
// that the pipe is welcome, then the one that dialed that it still wants it.
const yes = 'y'

// prover makes both proofs of a socket. They hold for this socket only: of the
// TLS session on it, or of the nonces, no two are alike.
type prover struct {
	key     [32]byte
	claim   claim
	nonce   nonce  // of the challenge
	session []byte // exported from the TLS session of the socket; nil if it is plain
}

func (p *prover) mac(role string, more []byte) (sum proof) {
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(role))
	mac.Write(p.claim.append(nil))
	mac.Write(p.nonce[:])
	mac.Write(p.session)
	mac.Write(more)
	mac.Sum(sum[:0])
	return sum
}

func (p *prover) accepting() proof { return p.mac("accepting ", nil) }
func (p *prover) dialing() proof   { return p.mac("dialing   ", nil) }

func (p proof) equal(q proof) bool { return hmac.Equal(p[:], q[:]) }

// A message is what is said on a control socket once both have greeted.
type message struct {
	kind byte
	pipe uint32
	n    uint64
}

const messageBytes = 1 + 4 + 8

const (
	msgReady   = 'r' // now you may dial sockets of this Conn; said by the side that was dialed
	msgWant    = 'w' // dial a socket for my pipe
	msgCannot  = 'x' // that did not work
	msgShare   = 's' // the pipe shares the socket of the other one of its two
	msgTake    = 't' // I use it
	msgEnd     = 'e' // my pipe has ended, after n bytes
	msgMigrate = 'm' // dial another socket for my pipe, as the one that it has stalls
	msgDrop    = 'd' // I have read your pipe to its end, or will not read the rest
	msgBye     = 'b' // I close the Conn
)

func (m message) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, m.kind), m.pipe)
	return binary.BigEndian.AppendUint64(b, m.n)
}

func readMessage(r io.Reader, b *[messageBytes]byte) (m message, err error) {
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return m, err
	}
	return message{b[0], binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint64(b[5:])}, nil
}
