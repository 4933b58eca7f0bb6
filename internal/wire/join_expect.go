package wire

// A JoinExpect names nodes that were invited to connect themselves to this one. If Whole,
// these are all of them, and others that were named before do not join any more.
type JoinExpect struct {
	Nodes []JoinNode
	Whole bool
}

func (JoinExpect) joinType() joinType { return typeJoinExpect }

func (m JoinExpect) encode(e *joinEncoder) {
	e.nodes(m.Nodes)
	e.flag(m.Whole)
}

func decodeJoinExpect(d *decoder) JoinMessage {
	return JoinExpect{Nodes: decodeNodes(d), Whole: d.flag()}
}
