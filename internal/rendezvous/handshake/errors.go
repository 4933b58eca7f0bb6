package handshake

import (
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// Errors of joining, to be tested with errors.Is. A node may also be refused
// for reasons of package membership: ErrRank, ErrAddress, ErrFull and ErrOver.
var (
	// ErrToken says that the two sides do not hold the same cluster token,
	// or that the token is too weak for where they are.
	ErrToken = errors.New("cluster token")
	// ErrFalseSeed says that a process that answers as a seed does not hold the
	// cluster token: it is of another cluster, or sits in between.
	ErrFalseSeed = errors.New("does not hold the cluster token")
	// ErrVersion says that the two sides speak different versions.
	ErrVersion = errors.New("another version of the protocol")
	// ErrRequest says that a node asks for something that makes no sense.
	ErrRequest = errors.New("bad request to join")
	// ErrBusy says that a seed answers, but not the request, because it has too many
	// others at present or is changing. It is worth asking again after a pause.
	ErrBusy = errors.New("busy")
	// ErrClosed says that a server or session was closed.
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

// An RedirectError reports a seed that does not lead.
type RedirectError struct {
	Seed   string // address
	Leader string // of the one that leads; empty: the seeds have not agreed on one
}

func (e *RedirectError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("seed %s does not reach most of the others, or they have not agreed yet on which of them leads", e.Seed)
	}
	return fmt.Sprintf("seed %s says that the one at %s leads", e.Seed, e.Leader)
}

// A Refusal is the reason why a seed refuses a client.
type Refusal struct {
	Code   wire.RefusalCode
	Reason error
}

func (r *Refusal) Error() string { return r.Reason.Error() }

// Unwrap returns Reason.
func (r *Refusal) Unwrap() error { return r.Reason }

// Refuse returns a Refusal.
func Refuse(code wire.RefusalCode, format string, args ...any) error {
	return &Refusal{code, fmt.Errorf(format, args...)}
}

// RefusalOf turns an error of package membership into a Refusal.
func RefusalOf(err error) error {
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
	return &Refusal{code, err}
}
