package quic

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
)

// An initialFilter handles the first packets of clients before quic-go reads them. To refuse a
// client or to make it validate its address, quic-go starts two goroutines and spends tens of
// microseconds per packet. So quic-go gets one packet of each flight of such a client, and a
// bounded number from each source.
//
// The filter withholds only Initial packets (RFC 9000, section 17.2.2), and none of a connection
// that quic-go knows: the client has used the destination connection ID before, or this side has
// chosen it, and then it is shorter than the IDs of clients.
//
// Only the goroutine that reads the socket uses it.
type initialFilter struct {
	handshakes *handshakes
	now        func() time.Time
	seed       maphash.Seed
	start      time.Time
	entries    [1024]initialEntry // by a hash of the client and its connection ID
	answers    [256]answerBudget  // by a hash of the source
}

// An initialEntry describes the last Initial with a destination connection ID.
type initialEntry struct {
	hash   uint64
	at     time.Duration // since start
	action initialAction
}

// holdsConnection reports whether the connection of the entry may have a handshake in
// progress.
func (r *initialEntry) holdsConnection(now time.Duration) bool {
	return r.hash != 0 && r.action == initialAdmitted && now-r.at < handshakeMemory
}

// An initialAction is the decision about an Initial packet.
type initialAction uint8

const (
	initialAdmitted initialAction = iota // quic-go may open a connection
	initialAnswered                      // quic-go answers with a Retry or CONNECTION_REFUSED
	initialDropped                       // no answer
)

const (
	// handshakeMemory is the time that a connection ID is remembered. It exceeds the time of
	// every handshake.
	handshakeMemory = 15 * time.Second

	// flightTime is the longest time between two packets of one flight. It is less than
	// the retransmission timeout of a client.
	flightTime = 100 * time.Millisecond

	// clientIDMin is the length of the shortest connection ID that a client may choose
	// (RFC 9000, section 7.2). Those of quic-go servers are shorter.
	clientIDMin = 8

	// initialBytesMin is the size of the smallest datagram with an Initial of a client
	// (RFC 9000, section 14.1).
	initialBytesMin = 1200
)

func newInitialFilter(h *handshakes) *initialFilter {
	f := &initialFilter{handshakes: h, now: time.Now, seed: maphash.MakeSeed()}
	f.start = f.now()
	return f
}

// inspect decides on a packet.
func (f *initialFilter) inspect(p []byte, from netip.Addr) (action initialAction) {
	destID, hasToken, ok := parseInitial(p)
	if !ok || destID.n < clientIDMin {
		return initialAdmitted
	}
	if len(p) < initialBytesMin {
		return initialDropped
	}
	source := admission.SourceOf(from)
	now := f.now().Sub(f.start)
	hash := maphash.Comparable(f.seed, initialKey{from, destID})
	r := &f.entries[hash%uint64(len(f.entries))]
	known := r.hash == hash && now-r.at < handshakeMemory
	if known && r.action == initialAdmitted {
		return initialAdmitted
	}
	if f.handshakes.admission.Limited(source) || !hasToken && f.handshakes.needsRetry(nil) {
		sameFlight := known && now-r.at < flightTime
		if sameFlight || !f.answersTo(source).take(now) {
			return initialDropped
		}
		action = initialAnswered
	}
	if action == initialAdmitted || !r.holdsConnection(now) {
		*r = initialEntry{hash, now, action}
	}
	return action
}

type initialKey struct {
	from netip.Addr
	id   connectionID
}

// answersTo returns the budget of a source, which it may share with others.
func (f *initialFilter) answersTo(source admission.Source) *answerBudget {
	return &f.answers[maphash.Comparable(f.seed, source)%uint64(len(f.answers))]
}

// An answerBudget limits the Retries and refusals for a source. Clients beyond it are not
// answered. If many clients dial at once they retransmit, and all are answered within
// seconds.
type answerBudget struct {
	spent int
	at    time.Duration // last refill
}

const (
	answersMax   = 512 // burst
	answersEvery = time.Second / 128
)

// take reports whether another answer is within the budget.
func (b *answerBudget) take(now time.Duration) bool {
	n := int64((now - b.at) / answersEvery)
	b.at += time.Duration(n) * answersEvery
	b.spent = max(0, b.spent-int(min(n, answersMax)))
	if b.spent == answersMax {
		return false
	}
	b.spent++
	return true
}

// A connectionID is a QUIC connection ID of up to 20 bytes.
type connectionID struct {
	n     int
	bytes [20]byte
}

// longHeader is the bit of the first byte that is set in packets of a handshake.
const longHeader = 0x80

const (
	versionQUIC1 = 1          // RFC 9000
	versionQUIC2 = 0x6b3343cf // RFC 9369
)

// parseInitial returns the destination connection ID of an Initial packet (RFC 9000, section
// 17.2.2), and whether it has a token. It reports false for other packets.
func parseInitial(p []byte) (destID connectionID, hasToken, ok bool) {
	const fixedBit, typeBits = 0x40, 0x30
	if len(p) < 7 || p[0]&(longHeader|fixedBit) != longHeader|fixedBit {
		return destID, false, false
	}
	initial := byte(0)
	switch binary.BigEndian.Uint32(p[1:]) {
	case versionQUIC1:
	case versionQUIC2:
		initial = 0x10
	default:
		return destID, false, false
	}
	var srcID connectionID
	rest, ok := destID.read(p[5:])
	if ok {
		rest, ok = srcID.read(rest)
	}
	if !ok || len(rest) == 0 || p[0]&typeBits != initial {
		return destID, false, false
	}
	return destID, rest[0] != 0, true // The length of the token follows the IDs.
}

// read parses an ID with its length, and returns the rest of p.
func (id *connectionID) read(p []byte) (rest []byte, ok bool) {
	if len(p) == 0 || int(p[0]) > len(id.bytes) || len(p) < 1+int(p[0]) {
		return nil, false
	}
	id.n = copy(id.bytes[:], p[1:1+p[0]])
	return p[1+id.n:], true
}
