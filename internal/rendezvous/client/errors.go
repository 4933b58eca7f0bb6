package client

import (
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
)

var (
	// ErrSeedGone says that the seed has ended the connection, or is silent.
	ErrSeedGone = errors.New("went away")
	// ErrLeft says that this node has left the world in an orderly way.
	ErrLeft = errors.New("has left the world")
)

// A FailedError says that the world has failed to form after it had admitted this node. All nodes
// of the world get the same text.
type FailedError struct {
	Seed     string // address
	Text     string // names the node that failed
	Progress membership.Progress
}

func (e *FailedError) Error() string { return "the world did not form: " + e.Text }

// A WaitingError says that the context of a call has ended before all nodes of the world had
// joined.
type WaitingError struct {
	Seed     string // address
	Progress membership.Progress
	Err      error // the cause of the end of the context
}

func (e *WaitingError) Error() string {
	return fmt.Sprintf("%v: %v; missing %s, according to the latest message of seed %s", e.Err, e.Progress, e.Progress.Missing(), e.Seed)
}

func (e *WaitingError) Unwrap() error { return e.Err }

// A RemovedError says that this live node is no longer in the world: others have lost it, or have
// excluded it.
type RemovedError struct {
	Seed     string // address
	Text     string // why
	Excluded bool   // the programs of other nodes have excluded it; else they have lost it
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("seed %s has removed this node from the world: %s", e.Seed, e.Text)
}

// A DismissedError says that the seed does not admit this node to a world that has formed.
type DismissedError struct {
	Seed string // address
	Text string
}

func (e *DismissedError) Error() string {
	return fmt.Sprintf("seed %s does not admit this node: %s", e.Seed, e.Text)
}
