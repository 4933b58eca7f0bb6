package wire

// TraceBytesMax is the maximum length of the trace of a node.
const TraceBytesMax = 32 << 10

// A Detail is the content of a trace that a seed asks for.
type Detail uint8

const (
	Full    Detail = iota // the last operations, links and counters
	Brief                 // much less
	History               // as many operations as possible, and nothing else. The node times its operations exactly for some time.
)

// A JoinStatusRequest asks the seed for the state of all nodes of the cluster. A
// client that does not join sends it in place of a [JoinRequest].
type JoinStatusRequest struct {
	Wait   uint32 // milliseconds that the seed waits for answers of nodes; 0: until its own limit
	Detail Detail // of the traces
}

// A JoinTraceRequest asks a node for its trace, which the node returns in a [JoinTrace]
// with the same Number.
type JoinTraceRequest struct {
	Number uint64
	Detail Detail // as in [JoinStatusRequest]
}

// A JoinTrace answers a [JoinTraceRequest].
type JoinTrace struct {
	Number uint64
	Trace  []byte `wire:"trace"` // opaque to the seed; empty if the node has none yet
}

// A JoinNodeStatus is the part of the answer to a [JoinStatusRequest] that describes one
// node.
type JoinNodeStatus struct {
	Rank    int32 // AnyRank: the node has none
	ID      [16]byte
	Name    string `wire:"name"`
	Addr    string `wire:"addr"`  // the first address of the node
	Trace   []byte `wire:"trace"` // as the node has sent it; the seed does not parse it
	Missing string `wire:"text"`  // the reason if there is no Trace; truncated to 2 KiB
	Took    uint64 // nanoseconds from the question for the Trace to the answer
	Silent  uint64 // nanoseconds since the last message of a node without Trace; 0: unknown
}

// A JoinWorldStatus describes the world. It follows the last [JoinNodeStatus], and ends
// the answer to a [JoinStatusRequest].
type JoinWorldStatus struct {
	Epoch   uint64 // of the view; 0: the world is not full
	World   uint32 // initial size of the world
	Joined  uint32 // nodes that have a rank
	Waiting uint32 // nodes that wait for a rank in a formed world
	Formed  bool
	Asked   uint64 // when the nodes were asked: nanoseconds since 1970, by the clock of the seed
	Changes []byte `wire:"trace"` // the last changes of the world, as JSON ([]trace.Change); empty: none
}
