package link

import "fmt"

// A Purpose is the reason for the connection of a link that was pending.
type Purpose uint8

const (
	// NoPurpose: the link was not pending, or the peer has made the connection.
	NoPurpose Purpose = iota
	// Watching: the peer is watched for failures.
	Watching
	// Collective: a collective exchanges data with the peer, or waits for it.
	Collective
	// Messages: a message for the peer.
	Messages
	// Calling: a call of a function of the peer, or its answer.
	Calling
	// Memory: the nodes share memory.
	Memory
	// Report: a report about a node, which the peer must answer.
	Report
	// Waiting: an operation of this node waits for the peer.
	Waiting
	// Again: the last connection, which the peer had needed, broke.
	Again
	// Joining: this node links itself to all nodes when it joins.
	Joining
)

// String returns a word for the purpose; "" for NoPurpose.
func (p Purpose) String() string {
	words := [...]string{"", "watch", "collective", "message", "call", "memory", "report", "wait", "again", "eager"}
	if int(p) < len(words) {
		return words[p]
	}
	return fmt.Sprintf("Purpose(%d)", uint8(p))
}

// Purpose returns why the link needs, or has, its connection.
func (l *Link) Purpose() Purpose { return Purpose(l.purpose.Load()) }

// messagesOf returns the purpose of messages with a type of elements: calls have none.
func messagesOf(t uint8) Purpose {
	if t == 0 {
		return Calling
	}
	return Messages
}
