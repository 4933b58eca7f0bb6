package wire

// A JoinStatus asks the seed where all nodes of the cluster are. It comes in place
// of a JoinRequest, from somebody who wants no place.
type JoinStatus struct{}

func (JoinStatus) joinType() joinType { return typeJoinStatus }

func (JoinStatus) encode(*joinEncoder) {}
