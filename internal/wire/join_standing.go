package wire

// A JoinStanding says how the world stands. It comes after the last JoinReport, and
// ends the answer to a JoinStatus.
type JoinStanding struct {
	Epoch   uint64 // of the view; 0: the world is not full
	World   uint32 // nodes with which the world forms
	Joined  uint32 // nodes that have a place in it
	Waiting uint32 // nodes that wait for one, as it has formed without them
	Formed  bool
}

func (JoinStanding) joinType() joinType { return typeJoinStanding }

func (m JoinStanding) encode(e *joinEncoder) {
	e.u64(m.Epoch)
	e.u32(m.World)
	e.u32(m.Joined)
	e.u32(m.Waiting)
	e.flag(m.Formed)
}

func decodeJoinStanding(d *decoder) JoinMessage {
	return JoinStanding{Epoch: d.u64(), World: d.u32(), Joined: d.u32(), Waiting: d.u32(), Formed: d.flag()}
}
