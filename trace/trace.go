// Package trace describes the recent history of nodes: which operations they have run,
// which are running, how far these have come and which ranks they wait for.
//
// [github.com/nexar-go/nexar.Node.Trace] returns a [Snapshot] of one node,
// [github.com/nexar-go/nexar.QueryCluster] a [Cluster] of all nodes. Both have a text
// form for people and a JSON form for programs. [WriteTable] combines the snapshots of
// several ranks and names the ranks that delay the others.
//
// All values are copies that belong to the caller.
package trace

import "time"

// A Snapshot is the recent history of a node at one moment: its last few hundred
// collectives, messages and calls, and up to as many running ones. Ranks in it are ranks
// of the world, also for operations on a smaller communicator.
type Snapshot struct {
	Node       string      `json:"node"`           // NodeID in hexadecimal
	Name       string      `json:"name,omitempty"` // of the process, for people: "hostname:pid"
	Rank       int         `json:"rank"`           // in the world of Epoch
	Size       int         `json:"size"`           // of that world
	Epoch      uint64      `json:"epoch"`
	Time       time.Time   `json:"time"`           // when the snapshot was taken, by the clock of the node
	Operations []Operation `json:"operations"`     // in the order of their Start
	Site       string      `json:"site,omitempty"` // where the main goroutine of a program is that has been in no operation for a second or more
	Links      []Link      `json:"links,omitempty"`
	Relayed    *Relayed    `json:"relayed,omitempty"` // nil unless the topology is sparse
	Counters   []Counter   `json:"counters,omitempty"`
	Process    Process     `json:"process,omitzero"`
}

// A Process has facts about the process of a node.
type Process struct {
	Goroutines   int    `json:"goroutines"`
	HeapBytes    uint64 `json:"heap_bytes"`    // of objects, including those that the garbage collector has not freed yet
	LentBuffers  int    `json:"lent_buffers"`  // of the pool of collectives, in use; see nexar.BufferPool
	IdleBytes    int64  `json:"idle_bytes"`    // of its other buffers
	SharedBytes  int64  `json:"shared_bytes"`  // of memory that other ranks of the host can read
	Dials        uint64 `json:"dials"`         // attempts to connect to other nodes
	DialFailures uint64 `json:"dial_failures"` // of Dials
	Failures     int    `json:"failures"`      // of other nodes, as in nexar.Node.Failures
	Recoveries   uint64 `json:"recoveries"`    // communicators of the world that have replaced one after a failure
	// Recovery is the time of all Recoveries, from the end of a communicator to the next, in nanoseconds in JSON.
	Recovery time.Duration `json:"recovery"`
	// CertificateEnd is the time at which the certificate of the node expires. The seed renews it before, if it can be reached.
	CertificateEnd time.Time `json:"certificate_end,omitzero"`
}

// Relayed counts the frames of a node that have passed relays of a sparse topology. A frame carries packets, 16 KiB at most.
type Relayed struct {
	Forwarded uint64 `json:"forwarded,omitzero"` // frames between other nodes that this node has passed on
	// Lost counts the frames that this node has dropped: without a next hop, with a full queue, or after they have waited too long. Their
	// source sends the packets again.
	Lost uint64 `json:"lost,omitzero"`
}

// A Link is the connection to another rank, with the bytes transferred so far. Bytes that
// one side has sent and the other has not received are in flight.
type Link struct {
	Rank      int    `json:"rank"`
	Transport string `json:"transport,omitempty"` // that carries payloads; empty while the connection is replaced
	Purpose   string `json:"purpose,omitempty"`   // reason of the connection, as in nexar.Peer.LinkPurpose
	Class     string `json:"class,omitempty"`     // of the path: "memory", "tcp", "tls" or "quic"
	Sent      uint64 `json:"sent"`                // bytes
	Received  uint64 `json:"received"`            // bytes

	Connections int `json:"connections,omitzero"` // made; more than 1 after one has ended
	// Stalls counts the stalls of the link: sent bytes made no progress for a second, while an operation ran. Stalled is the time since the last progress, in nanoseconds in JSON, or 0 if the link does not stall.
	Stalls  uint64        `json:"stalls,omitzero"`
	Stalled time.Duration `json:"stalled,omitzero"`
	// Unacknowledged counts the bytes that the link keeps to send them again over the next connection, as in nexar.Peer.
	Unacknowledged uint64 `json:"unacknowledged,omitzero"`

	// Hops is the number of links between the ranks if relays are between, or 0. Then Relay is the rank of the first
	// relay, and Delay the round trip, or 0 if it is not known.
	Hops  int           `json:"hops,omitempty"`
	Relay int           `json:"relay,omitempty"`
	Delay time.Duration `json:"delay,omitempty"`
	// Lost is the number of packets to the other rank over relays that were lost, as in nexar.Peer.LostPackets.
	Lost uint64 `json:"lost,omitzero"`

	DeviceMemory string `json:"device_memory,omitempty"` // how vectors on devices are exchanged, as in nexar.Peer.DeviceMemory
}

// An Operation is a collective, a message or a call, running or completed. Times of short
// operations in shared memory are accurate to 20 ms: reading the clock would take a
// noticeable part of their duration.
type Operation struct {
	Comm     string        `json:"comm"`               // ID of the communicator; "1" is the first world
	Epoch    uint64        `json:"epoch"`              // of the view of the communicator
	Purpose  string        `json:"purpose,omitempty"`  // of an operation that the user did not start: "setup"
	Op       string        `json:"op"`                 // "all_reduce", "send", "recv", "probe" or "call"
	Seq      uint64        `json:"seq"`                // sequence number of a collective in its communicator, from 1; 0 for others
	Type     string        `json:"type,omitempty"`     // of the elements
	Length   int           `json:"length"`             // elements per rank, or of all blocks
	Counts   uint32        `json:"counts,omitzero"`    // digest of the lengths of blocks that differ, or of the layout of structs
	Reduce   string        `json:"reduce,omitempty"`   // "sum"
	Plan     string        `json:"plan,omitempty"`     // algorithm and executor
	Function string        `json:"function,omitempty"` // that is called
	Root     int           `json:"-"`                  // -1: none; omitted in JSON then
	Peer     int           `json:"-"`                  // other rank of a message or call; -1: any or none; omitted in JSON then
	Tag      int64         `json:"tag,omitzero"`       // of a message; -1: any
	Order    uint64        `json:"order,omitzero"`     // of a message among those from its sender to its receiver in the communicator, from 1
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"-"` // until the end, or until now; "seconds" in JSON
	// Approximate says that Start and Duration have an error of up to 20 ms, as those of most short operations.
	Approximate bool `json:"approximate,omitzero"`

	// Still is the time without progress of a running collective; 0 if it is not known.
	Still time.Duration `json:"still,omitzero"`

	// Outcome is empty while the operation is running, OK if it has succeeded, and
	// otherwise the reason of its failure.
	Outcome string `json:"outcome,omitempty"`
	// Site is where the program has called a running operation that has lasted for a second or more: "train/main.go:42". It is empty if
	// that is unknown, and has two places if the program waits in both.
	Site string `json:"site,omitempty"`
	// Round is the first round of the plan, or the first piece of a vector in shared
	// memory, that is not complete. Rounds is the number of them. Both are 0 for
	// messages and calls.
	Round  int `json:"round,omitzero"`
	Rounds int `json:"rounds,omitzero"`
	// Bytes counts the bytes that this rank has sent and received for the operation or,
	// in shared memory, the bytes of its vector that are complete.
	Bytes int64 `json:"bytes"`
	// Waiting are ranks that a running operation waits for, or that a failed one was
	// waiting for, at most 64. WaitingMore counts the ranks beyond these.
	Waiting     []int `json:"waiting,omitempty"`
	WaitingMore int   `json:"waiting_more,omitzero"`
}

// Outcomes of operations.
const (
	OK         = "ok"
	PeerFailed = "peer failed"
	PeerLeft   = "peer left"
	Mismatch   = "mismatch"
	Timeout    = "timeout"
	Deadlock   = "deadlock"
	Cancelled  = "cancelled"
	Closed     = "closed"
	Revoked    = "revoked" // by an operation that failed on another rank
	Refused    = "refused" // message that does not fit its receive
	Failed     = "failed"  // for another reason
)

// Running reports whether the operation has not ended.
func (o *Operation) Running() bool { return o.Outcome == "" }
