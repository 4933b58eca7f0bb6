package wire

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
)

// AnyRank as the rank of a JoinRequest lets the seed choose the rank. As the rank of a
// JoinNodeStatus it means that the node has no rank.
const AnyRank = -1

// A JoinHello is the first message to a seed, and proves the token of the cluster. The
// version comes first, so that every version can read it.
type JoinHello struct {
	Version uint16 `wire:"version"`
	Proof   []byte `wire:"proof"` // 32 bytes; empty if the node has no token
}

// A VersionError reports that the peer speaks another version of the protocol.
type VersionError struct{ Theirs, Ours uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("peer speaks version %d of the nexar protocol, this side version %d", e.Theirs, e.Ours)
}

// A JoinAnswer answers a [JoinHello] that proves the token, and proves it in turn.
type JoinAnswer struct {
	Proof   []byte `wire:"proof"` // 32 bytes; empty if the cluster has no token
	Cluster string `wire:"name"`  // empty if the seeds have not agreed on an authority yet
}

// A JoinRefusal is the last message to a peer that the seed does not admit. Its form is the
// same in every version of the protocol.
type JoinRefusal struct {
	Code RefusalCode
	Text string `wire:"text"` // for display; truncated to 2 KiB
}

// A RefusalCode is the reason of a refusal. A reader accepts unknown codes.
type RefusalCode uint16

const (
	RefusedMalformed RefusalCode = iota + 1 // a malformed or unexpected message
	RefusedVersion                          // another version of the protocol
	RefusedToken                            // no cluster token, or the wrong one
	RefusedRank                             // the requested rank is taken or too large
	RefusedAddress                          // no address at which others could reach the node
	RefusedFull                             // the world is full
	RefusedOver                             // the world has formed already, or has failed to
	RefusedBusy                             // the seed serves as many requests as it can
	RefusedTopology                         // another topology than that of the world, or too many nodes for it
)

// A JoinRedirect is the last message of a seed that does not lead. It contains the address of
// the leader.
type JoinRedirect struct {
	Leader string `wire:"addr"` // its address; empty if the seeds have not elected one
}

// A JoinRequest asks the seed to admit the node to the world.
type JoinRequest struct {
	CSR        []byte   `wire:"certificate"` // PKCS #10, DER
	Advertised []string // configured addresses of the node; if empty, the seed uses the observed one
	Alternates []string // further addresses at which others may reach the node
	Port       uint16   // port of the node; 0: the source port of the connection
	Host       string   `wire:"name"` // identifies the host, equal for all nodes on it
	Name       string   `wire:"name"` // for display: hostname:pid
	Rank       int32    // the only rank that the node accepts, or AnyRank
	Spare      bool     // the node replaces a node that has failed
	Rejoin     bool     // a seed may have admitted the node before, and the connection to it has ended
	Epoch      uint64   // of the newest view of a node that rejoins; 0: none
	Endpoints  []membership.Endpoint
	// CheckAddress asks the seed to dial the Advertised addresses before it admits the node. The seed
	// then sends the JoinAdmitted first, so that the node listens, and may still refuse it.
	CheckAddress bool
	// Trial requests the answer of a join without joining: after the JoinAdmitted the seed sends a
	// JoinRefusal or a JoinProgress, and does not admit the node.
	Trial bool
	// Topology is the topology of the node in the form of topology.Topology.String, or empty if it is full.
	Topology string `wire:"name"`
	Process  string `wire:"name"` // identifies the process on its host
	// Size is the size of the world to which Rank belongs. In a world of another size, and in one that has formed, the node accepts
	// any rank. 0: it does not.
	Size  uint32
	Place string `wire:"name"` // see membership.Node.Place
}

// A JoinAdmitted gives a node its identity and certificate.
type JoinAdmitted struct {
	Certificate []byte `wire:"certificate"` // DER
	CA          []byte `wire:"certificate"` // DER
	ID          [16]byte
	Observed    string   `wire:"addr"` // source address of the node's packets
	World       uint32   // initial size of the world
	Durable     bool     // the seeds write the membership to a replicated log: a node that loses its connection rejoins
	Seeds       []string // addresses of all seeds, if there are several
}

// A JoinRenew requests the node's next certificate. Its signing request is
// made with the same key as the first.
type JoinRenew struct {
	CSR []byte `wire:"certificate"` // PKCS #10, DER
}

// A JoinRenewed carries a node's next certificate.
type JoinRenewed struct {
	Certificate []byte `wire:"certificate"` // DER
}

// LogBytesMax is the maximum length of the data of a JoinLog.
const LogBytesMax = 48 << 10

// A JoinSeedHello is the first message of a seed to another seed of its cluster after the
// [JoinAnswer], and also the answer to it. JoinLogs follow.
type JoinSeedHello struct {
	Seed  uint64 // ID of the sender in the log
	World uint32 // initial size of the world
	Proof []byte `wire:"proof"` // proof of the seeds' token; empty if there is no token
}

// A JoinLog is a part of a message of the replicated log.
type JoinLog struct {
	More bool   // the next JoinLog continues the message
	Data []byte `wire:"log"` // opaque to this package
}
