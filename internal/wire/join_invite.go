package wire

// A JoinInvite asks a node to connect itself to the others of a list, of which it is the
// last: the nodes of the view with Epoch, World of them, and then others that join it, to
// which it need not get a link. It takes the place of one with a lower number.
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
