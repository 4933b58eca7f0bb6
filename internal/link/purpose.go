package link

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/wire"
)

// A Purpose is the reason for the connection of a link that was pending.
type Purpose uint8

const (
	// NoPurpose: the link was not pending, or the peer has made the connection.
	NoPurpose Purpose = iota
	// Watching: the peer is watched for failures.
	Watching
	// Collective: a collective exchanges data with the peer, or waits for it.
	Collective
	// Messages: a message for the peer.
	Messages
	// Calling: a call of a function of the peer, or its answer.
	Calling
	// Memory: the nodes share memory.
	Memory
	// Report: a report about a node, which the peer must answer.
	Report
	// Waiting: an operation of this node waits for the peer.
	Waiting
	// Again: the last connection, which the peer had needed, broke.
	Again
	// Joining: this node links itself to all nodes when it joins.
	Joining
)

// String returns a word for the purpose; "" for NoPurpose.
func (p Purpose) String() string {
	words := [...]string{"", "watch", "collective", "message", "call", "memory", "report", "wait", "again", "eager"}
	if int(p) < len(words) {
		return words[p]
	}
	return fmt.Sprintf("Purpose(%d)", uint8(p))
}

// Purpose returns why the link needs, or has, its connection.
func (l *Link) Purpose() Purpose { return Purpose(l.purpose.Load()) }

// purposeOf returns the purpose of frames that wait on a pending link: that of the first one that
// needs a connection, or NoPurpose if none does.
func purposeOf(b []byte) Purpose {
	for len(b) > 0 {
		t := wire.Type(b[0])
		n, err := wire.Size(t)
		if err != nil || n > len(b) {
			return Report
		}
		switch f := b[:n]; t {
		case wire.TypeStep, wire.TypeStepOffer, wire.TypeQuery:
			return Collective
		case wire.TypeMessage:
			if m, err := wire.ParseMessage(f); err == nil && m.Type == 0 {
				return Calling
			}
			return Messages
		case wire.TypeOffer:
			if o, err := wire.ParseOffer(f); err == nil && o.Type == 0 {
				return Calling
			}
			return Messages
		case wire.TypeRevoke:
			r, err := wire.ParseRevoke(f)
			if err != nil || n+r.Length > len(b) {
				return Report
			}
			n += r.Length
		case wire.TypeClosed:
		default:
			return Report
		}
		b = b[n:]
	}
	return NoPurpose
}
