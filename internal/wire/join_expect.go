package wire

// A JoinExpect names nodes that were invited to connect themselves to this one.
type JoinExpect struct{ Nodes []JoinNode }

func (JoinExpect) joinType() joinType { return typeJoinExpect }

func (m JoinExpect) encode(e *joinEncoder) { e.nodes(m.Nodes) }

func decodeJoinExpect(d *decoder) JoinMessage { return JoinExpect{Nodes: decodeNodes(d)} }
