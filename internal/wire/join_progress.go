package wire

// A JoinProgress tells a waiting node how many of how many have joined, and nodes of a
// world that has formed how many there are of at least how many, if the next view would
// be too small.
type JoinProgress struct{ Joined, World uint32 }

func (JoinProgress) joinType() joinType { return typeJoinProgress }

func (m JoinProgress) encode(e *joinEncoder) {
	e.u32(m.Joined)
	e.u32(m.World)
}

func decodeJoinProgress(d *decoder) JoinMessage {
	return JoinProgress{Joined: d.u32(), World: d.u32()}
}
