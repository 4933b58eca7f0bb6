package wire

// A JoinView hands out a view: the nodes, in the order of their ranks.
type JoinView struct {
	Epoch uint64
	Nodes []JoinNode
}

// A JoinNode is one node of a list.
type JoinNode struct {
	ID    [16]byte
	Addrs []string // in the order in which to try them
	Host  string
	Name  string
}

// joinNodeBytesMin is the length of a JoinNode whose fields are all empty.
const joinNodeBytesMin = 16 + 1 + 2 + 2

func (JoinView) joinType() joinType { return typeJoinView }

func (m JoinView) encode(e *joinEncoder) {
	e.u64(m.Epoch)
	e.nodes(m.Nodes)
}

func decodeJoinView(d *decoder) JoinMessage { return JoinView{Epoch: d.u64(), Nodes: decodeNodes(d)} }

func (e *joinEncoder) nodes(nodes []JoinNode) {
	e.u32(uint32(len(nodes)))
	for _, n := range nodes {
		e.id(n.ID)
		e.names(n.Addrs)
		e.name(n.Host, nameBytesMax)
		e.name(n.Name, nameBytesMax)
	}
}

func decodeNodes(d *decoder) []JoinNode {
	n := d.u32()
	if uint64(n)*joinNodeBytesMin > uint64(len(d.b)) && d.err == nil {
		d.err = errShort
	}
	if d.err != nil || n == 0 {
		return nil
	}
	nodes := make([]JoinNode, n)
	for i := range nodes {
		nodes[i] = JoinNode{
			ID:    decodeID(d),
			Addrs: decodeNames(d),
			Host:  decodeName(d, nameBytesMax),
			Name:  decodeName(d, nameBytesMax),
		}
	}
	return nodes
}
