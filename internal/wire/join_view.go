package wire

// A JoinView distributes a view: the nodes, in the order of their ranks.
type JoinView struct {
	Epoch uint64
	Nodes []JoinNode
}

// A JoinNode is one node of a list.
type JoinNode struct {
	ID    [16]byte
	Addrs []string // in the order of preference
	Host  string
	Name  string
	// Endpoints are where the transports of the node listen, one each.
	Endpoints []JoinEndpoint
}

// A JoinEndpoint is where a transport of a node listens.
type JoinEndpoint struct {
	Transport string
	// Addr is in the form of the transport. If it is empty, a transport between
	// hosts listens at the Addrs of the node, and one within a host at its ID.
	Addr string
}

// joinNodeBytesMin is the length of a JoinNode whose fields are all empty.
const joinNodeBytesMin = 16 + 1 + 2 + 2 + 1

func (m JoinView) code(c *joinCodec) JoinMessage {
	c.u64(&m.Epoch)
	c.nodes(&m.Nodes)
	return m
}

// A JoinProgress tells a waiting node how many of World nodes have joined. Nodes
// of a formed world receive it if the next view would be smaller than World.
type JoinProgress struct{ Joined, World uint32 }

func (m JoinProgress) code(c *joinCodec) JoinMessage {
	c.u32(&m.Joined)
	c.u32(&m.World)
	return m
}

// A JoinReady says that the node has links to all others of the view.
type JoinReady struct{ Epoch uint64 }

func (m JoinReady) code(c *joinCodec) JoinMessage {
	c.u64(&m.Epoch)
	return m
}

// A JoinUnable reports that the node cannot reach Peer, and why.
type JoinUnable struct {
	Epoch uint64
	Peer  [16]byte
	// Left says that Peer has said goodbye to the node. The node repeats it to the next
	// seed if the one that Peer has told is gone.
	Left bool
	Text string // cut off after 2 KiB
}

func (m JoinUnable) code(c *joinCodec) JoinMessage {
	c.u64(&m.Epoch)
	c.id(&m.Peer)
	c.flag(&m.Left)
	c.text(&m.Text)
	return m
}

// A JoinFormed says that all nodes of the view are ready.
type JoinFormed struct{ Epoch uint64 }

func (m JoinFormed) code(c *joinCodec) JoinMessage {
	c.u64(&m.Epoch)
	return m
}

// A JoinFailed says that the world will not form, or that the receiver is not
// in it any more, and names the cause.
type JoinFailed struct {
	Text string // cut off after 2 KiB
}

func (m JoinFailed) code(c *joinCodec) JoinMessage {
	c.text(&m.Text)
	return m
}

// A JoinLeave is the last message of a node that leaves in good order.
type JoinLeave struct{}

func (m JoinLeave) code(*joinCodec) JoinMessage { return m }

// A JoinPing is a sign of life. A node returns the seed's.
type JoinPing struct{ Seq uint64 }

func (m JoinPing) code(c *joinCodec) JoinMessage {
	c.u64(&m.Seq)
	return m
}

// A JoinInvite asks a node, the last of Nodes, to connect to the others: first
// the World nodes of the view with Epoch, then nodes that join beside it, which
// it may fail to reach. It replaces invitations with lower numbers.
type JoinInvite struct {
	Number uint64
	Epoch  uint64
	World  uint32
	Nodes  []JoinNode
}

func (m JoinInvite) code(c *joinCodec) JoinMessage {
	c.u64(&m.Number)
	c.u64(&m.Epoch)
	c.u32(&m.World)
	c.nodes(&m.Nodes)
	return m
}

// A JoinExpect announces nodes that have been invited to connect to the
// receiver. If Whole, the list is complete, and nodes that were announced
// before and are not in it do not join any more.
type JoinExpect struct {
	Nodes []JoinNode
	Whole bool
}

func (m JoinExpect) code(c *joinCodec) JoinMessage {
	c.nodes(&m.Nodes)
	c.flag(&m.Whole)
	return m
}

// A JoinForget withdraws the announcement of a node by a JoinExpect.
type JoinForget struct{ Peer [16]byte }

func (m JoinForget) code(c *joinCodec) JoinMessage {
	c.id(&m.Peer)
	return m
}

// A JoinLinked says that the node has links to all nodes of the world in the
// invitation with Number. The seed waits until these confirm it by a JoinLink.
type JoinLinked struct{ Number uint64 }

func (m JoinLinked) code(c *joinCodec) JoinMessage {
	c.u64(&m.Number)
	return m
}

// A JoinLink says whether the node has a link to Peer, a node that joins. A
// joining node enters a view only if the others confirm its links. The latest
// message about a peer counts.
type JoinLink struct {
	Peer [16]byte
	Up   bool
}

func (m JoinLink) code(c *joinCodec) JoinMessage {
	c.id(&m.Peer)
	c.flag(&m.Up)
	return m
}

// A JoinCall asks the nodes of the view with Epoch to quiesce, since others
// want to join.
type JoinCall struct{ Epoch uint64 }

func (m JoinCall) code(c *joinCodec) JoinMessage {
	c.u64(&m.Epoch)
	return m
}

// A JoinRest says that the node has quiesced: it starts nothing more in the
// view with Epoch, and all nodes agree to have another one.
type JoinRest struct {
	Epoch  uint64
	Leaves bool   // the node is not to be in the next view
	Within uint32 // milliseconds that it waits for the others; 0: without limit
}

func (m JoinRest) code(c *joinCodec) JoinMessage {
	c.u64(&m.Epoch)
	c.flag(&m.Leaves)
	c.u32(&m.Within)
	return m
}
