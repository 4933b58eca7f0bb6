package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
)

// The first eight bytes of every socket, unencrypted, state its purpose. They must differ
// from the first bytes of a watch of transport/quic, which can share the port.
const (
	magicBytes   = 8
	magicControl = "tnexar1c" // TLS follows, then a conn
	magicTLS     = "tnexar1t" // TLS follows, then a pipe
	magicPlain   = "tnexar1p" // a pipe without TLS
)

// A greeting is the first message of both sides on a control socket. The side that
// accepted the socket sends first: its greeting shows the dialer that its certificate is
// accepted, and until then Dial can be cancelled.
type greeting struct {
	plain    bool
	pipesMax uint32 // number of pipes that the other side may have open
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
		return g, fmt.Errorf("the peer sent an invalid greeting: %x", b)
	}
	return g, nil
}

// agree returns an error if the two sides differ in Plain.
func (g greeting) agree(peers greeting) error {
	if g.plain == peers.plain {
		return nil
	}
	return fmt.Errorf("configurations differ: Plain = %v on this side and Plain = %v on the peer: set NEXAR_PLAIN_BULK to the same value on both", g.plain, peers.plain)
}

type connID [16]byte

// keys are the secrets that both ends export from the TLS session of a control socket.
type keys struct {
	id    connID // finds the conn at the side that accepted it
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

// A claim is the first message of the dialer of a socket: the conn and the pipe that it
// belongs to. If the TLS session is that of the conn, the peer answers with yes, and
// otherwise with a challenge.
type claim struct {
	conn  connID
	pipe  uint32
	nonce nonce // for the proofs
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

// A challenge answers a claim. It proves possession of the key of the conn, and requests
// the same proof of the dialer.
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

// yes is the confirmation that follows the proofs. First the side that accepted the
// socket accepts the pipe, then the dialer confirms that it still wants it.
const yes = 'y'

// A prover computes the proofs of both sides for a socket. They are bound to it by its
// TLS session, or by the nonces if it has none.
type prover struct {
	key     [32]byte
	claim   claim
	nonce   nonce  // in the challenge
	session []byte // exported from the TLS session of the socket; nil without TLS
}

func (p *prover) mac(role string) (sum proof) {
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(role))
	mac.Write(p.claim.append(nil))
	mac.Write(p.nonce[:])
	mac.Write(p.session)
	mac.Sum(sum[:0])
	return sum
}

// Roles of the proofs.
const (
	roleAccept = "accepting "
	roleDial   = "dialing   "
)

// claimTo sends the claim and checks the challenge of the peer.
func (p *prover) claimTo(rw io.ReadWriter) error {
	rand.Read(p.claim.nonce[:])
	if _, err := rw.Write(p.claim.append(nil)); err != nil {
		return err
	}
	got, err := readChallenge(rw)
	if err != nil {
		return err
	}
	p.nonce = got.nonce
	if !got.proof.equal(p.mac(roleAccept)) {
		return errProof
	}
	return nil
}

// prove sends the proof of the dialer.
func (p *prover) prove(w io.Writer) error {
	sum := p.mac(roleDial)
	_, err := w.Write(sum[:])
	return err
}

// challenge answers the claim, and checks the proof of the dialer.
func (p *prover) challenge(rw io.ReadWriter) error {
	rand.Read(p.nonce[:])
	if _, err := rw.Write(challenge{p.nonce, p.mac(roleAccept)}.append(nil)); err != nil {
		return err
	}
	var got proof
	if _, err := io.ReadFull(rw, got[:]); err != nil {
		return err
	}
	if !got.equal(p.mac(roleDial)) {
		return errProof
	}
	return nil
}

func (p proof) equal(q proof) bool { return hmac.Equal(p[:], q[:]) }

// A message is sent on a control socket after the greetings.
type message struct {
	kind byte
	pipe uint32
	n    uint64
}

const messageBytes = 1 + 4 + 8

const (
	msgReady  = 'r' // the dialer may dial sockets for pipes; sent by the side that accepted the conn
	msgWant   = 'w' // dial a socket for my pipe
	msgCannot = 'x' // a socket could not be dialed or shared
	msgShare  = 's' // the pipe shares the socket of its partner
	msgTake   = 't' // accepts or confirms a shared socket
	msgEnd    = 'e' // my pipe has ended after n bytes
	msgDrop   = 'd' // your pipe was read to its end, or will not be read further
	msgHeard  = 'h' // answers msgEnd and msgDrop
	msgBroken = 'k' // the socket of a pipe has failed, so the conn ends
	msgBye    = 'b' // the conn is closed
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
