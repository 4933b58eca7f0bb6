package rendezvous

import (
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// Errors of joining, to be tested with errors.Is. A node may also be refused
// for reasons of package member: ErrRank, ErrAddress, ErrFull and ErrOver.
var (
	// ErrToken says that the two sides do not hold the same cluster token,
	// or that the token is too weak for where they are.
	ErrToken = errors.New("cluster token")
	// ErrFalseSeed says that what answers as a seed does not hold the
	// cluster token: it is of another cluster, or sits in between.
	ErrFalseSeed = errors.New("does not hold the cluster token")
	// ErrVersion says that the two sides speak different versions.
	ErrVersion = errors.New("another version of the protocol")
	// ErrRequest says that a node asks for something that makes no sense.
	ErrRequest = errors.New("bad request to join")
	// ErrSeedGone says that the seed went away, or fell silent.
	ErrSeedGone = errors.New("went away")
	// ErrBusy says that a seed answers, but not the request, because it has too many
	// others at present or is changing. It is worth asking again after a pause.
	ErrBusy = errors.New("busy")
	// ErrLeft says that this node has left the world in good order.
	ErrLeft = errors.New("has left the world")
	// ErrClosed says that the Server or Session was closed.
	ErrClosed = errors.New("closed")
)

// A RefusedError says that a seed did not admit this node, and why. To ask
// again would not help, unless it is an ErrBusy.
type RefusedError struct {
	Seed string // address
	Code wire.RefusalCode
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("seed %s refused this node: %s", e.Seed, e.Text)
}

// Unwrap is the sentinel for the reason, nil if this version knows none.
func (e *RefusedError) Unwrap() error {
	switch e.Code {
	case wire.RefusedMalformed:
		return ErrRequest
	case wire.RefusedVersion:
		return ErrVersion
	case wire.RefusedToken:
		return ErrToken
	case wire.RefusedRank:
		return membership.ErrRank
	case wire.RefusedAddress:
		return membership.ErrAddress
	case wire.RefusedFull:
		return membership.ErrFull
	case wire.RefusedOver:
		return membership.ErrOver
	case wire.RefusedBusy:
		return ErrBusy
	default:
		return nil
	}
}

// An ElsewhereError says that another seed has to answer.
type ElsewhereError struct {
	Seed   string // address
	Leader string // of the one that leads; empty: the seeds have not agreed on one
}

func (e *ElsewhereError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("seed %s does not reach most of the others, or they have not agreed yet on which of them leads", e.Seed)
	}
	return fmt.Sprintf("seed %s says that the one at %s leads", e.Seed, e.Leader)
}

// A FailedError says that the world did not form after this node was admitted
// to it. All nodes of the world get the same text.
type FailedError struct {
	Seed string // address
	Text string // names who failed
}

func (e *FailedError) Error() string { return "the world did not form: " + e.Text }

// A RemovedError says that this node is not in the world any more that it was
// in, although it lives: others have lost it.
type RemovedError struct {
	Seed string // address
	Text string // why
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("seed %s has removed this node from the world: %s", e.Seed, e.Text)
}

// A DismissedError says that this node was not let into a world that has formed,
// and why.
type DismissedError struct {
	Seed string // address
	Text string
}

func (e *DismissedError) Error() string {
	return fmt.Sprintf("seed %s does not let this node in: %s", e.Seed, e.Text)
}

// A refusal is why the server sends a client away.
type refusal struct {
	code wire.RefusalCode
	err  error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(code wire.RefusalCode, format string, args ...any) error {
	return &refusal{code, fmt.Errorf(format, args...)}
}

// refusalOf turns an error of a Formation into a refusal.
func refusalOf(err error) error {
	code := wire.RefusedMalformed
	switch {
	case errors.Is(err, membership.ErrRank):
		code = wire.RefusedRank
	case errors.Is(err, membership.ErrAddress):
		code = wire.RefusedAddress
	case errors.Is(err, membership.ErrFull):
		code = wire.RefusedFull
	case errors.Is(err, membership.ErrOver):
		code = wire.RefusedOver
	}
	return &refusal{code, err}
}
