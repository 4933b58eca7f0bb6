package wire

// A JoinLeave is a node's last message to the seed: it goes in good order.
type JoinLeave struct{}

func (JoinLeave) joinType() joinType { return typeJoinLeave }

func (JoinLeave) encode(*joinEncoder) {}
