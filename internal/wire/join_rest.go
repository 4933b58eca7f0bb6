package wire

// A JoinRest says that the node is at rest, and has nothing more to do in the view
// with Epoch: all nodes agree that there is to be another one.
type JoinRest struct {
	Epoch  uint64
	Leaves bool   // it is not to be in that
	Within uint32 // milliseconds that it waits for the others, 0: without limit
}

func (JoinRest) joinType() joinType { return typeJoinRest }

func (m JoinRest) encode(e *joinEncoder) {
	e.u64(m.Epoch)
	e.flag(m.Leaves)
	e.u32(m.Within)
}

func decodeJoinRest(d *decoder) JoinMessage {
	return JoinRest{Epoch: d.u64(), Leaves: d.flag(), Within: d.u32()}
}
