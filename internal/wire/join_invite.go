package wire

// A JoinInvite asks a node, the last of a list, to connect itself to the others: the World
// nodes of the view with Epoch, and then others that join it. The node may fail to reach
// those. It takes the place of one with a lower number.
type JoinInvite struct {
	Number uint64
	Epoch  uint64
	World  uint32
	Nodes  []JoinNode
}

func (JoinInvite) joinType() joinType { return typeJoinInvite }

func (m JoinInvite) encode(e *joinEncoder) {
	e.u64(m.Number)
	e.u64(m.Epoch)
	e.u32(m.World)
	e.nodes(m.Nodes)
}

func decodeJoinInvite(d *decoder) JoinMessage {
	return JoinInvite{Number: d.u64(), Epoch: d.u64(), World: d.u32(), Nodes: decodeNodes(d)}
}
