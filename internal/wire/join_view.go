package wire

import "github.com/nexar-go/nexar/internal/membership"

// A JoinProgress tells a waiting node the number of World nodes that have joined, and the first
// of them. With Waited, the node logs the nodes that are missing; once all nodes have joined, Joined is then the number of nodes with
// connections to all others, and Candidates has the rest. Nodes of a formed world receive it, without Candidates, if the next view would be
// smaller than World.
type JoinProgress membership.Progress

// A JoinView distributes a view.
type JoinView membership.View

// A JoinReady says that the node has links to all others of the view.
type JoinReady struct{ Epoch uint64 }

// A Loss is the kind of a [JoinUnreachable].
type Loss uint8

const (
	// LossBroken: the node cannot reach the peer.
	LossBroken Loss = iota
	// LossLeft: the peer has said goodbye to the node. It tells the seed as well, if it reaches it.
	LossLeft
	lossEnd
)

// A JoinUnreachable reports that the node has lost Peer, and the reason.
type JoinUnreachable struct {
	Epoch uint64
	Peer  [16]byte
	Kind  Loss
	Text  string `wire:"text"` // truncated to 2 KiB
}

// A JoinFormed says that all nodes of the view are ready.
type JoinFormed struct{ Epoch uint64 }

// A JoinFailed says that the world will not form, or that the receiver is no longer in it, with
// the cause.
type JoinFailed struct {
	Text string `wire:"text"` // truncated to 2 KiB
	// The progress of a world that did not form; otherwise zero.
	Joined, World uint32
	Candidates    []membership.Candidate
}

// A JoinLeave is the last message of a node that leaves, or to such a node.
type JoinLeave struct{}

// A JoinPing is a sign of life. A node returns the pings of the seed.
type JoinPing struct {
	Seq   uint64
	Epoch uint64 // of the newest view that the seed has distributed; 0: none
}

// A JoinInvite asks a node, the last of Nodes, to connect to the others: first the World nodes
// of the view with Epoch, then other joining nodes, which it may fail to reach. It replaces
// invitations with lower numbers.
type JoinInvite struct {
	Number uint64
	Epoch  uint64
	World  uint32
	Nodes  []membership.Node
}

// A JoinExpect announces nodes that have been invited to connect to the receiver.
type JoinExpect struct {
	Nodes []membership.Node
	// Complete says that Nodes are all expected nodes: nodes that were announced before and are
	// missing do not join.
	Complete bool
}

// A JoinForget withdraws the announcement of a node by a [JoinExpect].
type JoinForget struct{ Peer [16]byte }

// A JoinLinked says that the node has the links that the invitation with Number asks for. The seed waits until the other nodes confirm
// them by a [JoinLink].
type JoinLinked struct{ Number uint64 }

// A JoinLink says whether the node has a link to Peer, a joining node. A joining node enters a
// view only if the others confirm its links. The latest message about a peer counts.
type JoinLink struct {
	Peer [16]byte
	Up   bool
}

// A JoinQuiesce asks the nodes of the view with Epoch to quiesce, since others
// want to join.
type JoinQuiesce struct{ Epoch uint64 }

// A JoinQuiesced says that the node has quiesced: it starts nothing more in the
// view with Epoch, and agrees to the next view.
type JoinQuiesced struct {
	Epoch   uint64
	Leaves  bool   // the node leaves with the next view
	Timeout uint32 // milliseconds that it waits for the others; 0: no limit
}

// A JoinExclude asks the seed to remove Peer from the world, as the program of the node wishes.
type JoinExclude struct {
	Epoch uint64
	Peer  [16]byte
}

// A JoinExcluded says that the receiver is no longer in the world because other nodes have excluded
// it.
type JoinExcluded struct {
	Text string `wire:"text"` // names a rank that has excluded it; truncated to 2 KiB
}

// A JoinDifference distributes a view as the difference from the view before. The seed sends it to a
// few nodes, and nodes to each other, in a [View] frame.
type JoinDifference membership.Difference

// A JoinConfirm says that the nodes in the subtree of the sender have the view with Epoch, except the
// subtrees of the nodes with the ranks Missing in the view before.
type JoinConfirm membership.Confirmation

// A JoinBehind says that the newest view of the sender is that with Epoch, and requests those that
// follow.
type JoinBehind membership.Behind
