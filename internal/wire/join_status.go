package wire

// RecordBytesMax is the maximum length of the record of a node.
const RecordBytesMax = 32 << 10

// A JoinStatus asks the seed for the state of all nodes of the cluster. A
// client that wants no rank sends it in place of a JoinRequest.
type JoinStatus struct{}

func (m JoinStatus) code(*joinCodec) JoinMessage { return m }

// A JoinAsk asks a node for its record, which the node returns in a JoinTell
// with the same Number.
type JoinAsk struct{ Number uint64 }

func (m JoinAsk) code(c *joinCodec) JoinMessage {
	c.u64(&m.Number)
	return m
}

// A JoinTell is a node's answer to a JoinAsk.
type JoinTell struct {
	Number uint64 // of the JoinAsk
	Record []byte // opaque to the seed; empty if the node has none yet
}

func (m JoinTell) code(c *joinCodec) JoinMessage {
	c.u64(&m.Number)
	c.bytes(&m.Record, RecordBytesMax)
	return m
}

// A JoinReport is the part of the answer to a JoinStatus that describes one node.
type JoinReport struct {
	Rank    int32 // AnyRank: the node has none
	ID      [16]byte
	Name    string
	Addr    string // the first address of the node
	Record  []byte // as the node has sent it; the seed does not parse it
	Missing string // why there is no Record; cut off after 2 KiB
}

func (m JoinReport) code(c *joinCodec) JoinMessage {
	c.rank(&m.Rank)
	c.id(&m.ID)
	c.name(&m.Name, nameBytesMax)
	c.name(&m.Addr, addrBytesMax)
	c.bytes(&m.Record, RecordBytesMax)
	c.text(&m.Missing)
	return m
}

// A JoinStanding describes the world. It follows the last JoinReport, and ends
// the answer to a JoinStatus.
type JoinStanding struct {
	Epoch   uint64 // of the view; 0: the world is not full
	World   uint32 // initial size of the world
	Joined  uint32 // nodes that have a rank
	Waiting uint32 // nodes that wait for a rank in a formed world
	Formed  bool
}

func (m JoinStanding) code(c *joinCodec) JoinMessage {
	c.u64(&m.Epoch)
	c.u32(&m.World)
	c.u32(&m.Joined)
	c.u32(&m.Waiting)
	c.flag(&m.Formed)
	return m
}
