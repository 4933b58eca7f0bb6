package handshake

import (
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// Errors of joining, for errors.Is. A seed also refuses a node with errors of package
// membership: ErrRank, ErrAddress, ErrFull and ErrOver.
var (
	// ErrToken says that the two sides do not hold the same cluster token,
	// or that the token is too weak for an address other than loopback.
	ErrToken = errors.New("cluster token")
	// ErrFalseSeed says that a process that answers as a seed does not hold the
	// cluster token: it belongs to another cluster, or is a man in the middle.
	ErrFalseSeed = errors.New("does not hold the cluster token")
	// ErrVersion says that the two sides speak different versions of the protocol.
	ErrVersion = errors.New("another version of the protocol")
	// ErrRequest says that a request to join is malformed.
	ErrRequest = errors.New("bad request to join")
	// ErrWorldSize says that a node expects a world of another size than that of the seed.
	ErrWorldSize = errors.New("another size of the world")
	// ErrBusy says that a seed has too many requests at present, or that its leader or world
	// is changing. The caller should try again after a pause.
	ErrBusy = errors.New("busy")
	// ErrTopology says that a node has another topology than the world, or that the world would have too many nodes for
	// its topology.
	ErrTopology = errors.New("another topology than that of the world")
	// ErrClosed says that a server or session was closed.
	ErrClosed = errors.New("closed")
)

// A RefusedError says that a seed did not admit this node, and why. Another attempt has the
// same result, unless the cause is ErrBusy.
type RefusedError struct {
	Seed string // address
	Code wire.RefusalCode
	Text string
	// Unproved says that the process at that address had not yet proved the token: it may be anyone.
	Unproved bool
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("seed %s refused this node: %s", e.Seed, e.Text)
}

// causes contains the sentinel for each code of a refusal.
var causes = [...]error{
	wire.RefusedMalformed: ErrRequest,
	wire.RefusedVersion:   ErrVersion,
	wire.RefusedToken:     ErrToken,
	wire.RefusedRank:      membership.ErrRank,
	wire.RefusedAddress:   membership.ErrAddress,
	wire.RefusedFull:      membership.ErrFull,
	wire.RefusedOver:      membership.ErrOver,
	wire.RefusedBusy:      ErrBusy,
	wire.RefusedTopology:  ErrTopology,
}

// Unwrap returns the sentinel for the code, or nil for an unknown code.
func (e *RefusedError) Unwrap() error {
	if int(e.Code) < len(causes) {
		return causes[e.Code]
	}
	return nil
}

// A RedirectError reports a seed that does not lead.
type RedirectError struct {
	Seed   string // address
	Leader string // address of the leader; empty: not elected yet
}

func (e *RedirectError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("seed %s does not reach a majority of the seeds, or they have not elected a leader yet", e.Seed)
	}
	return fmt.Sprintf("seed %s says that seed %s leads", e.Seed, e.Leader)
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

// RefusalOf turns an error that wraps a sentinel of this package or of package membership
// into a Refusal. It returns a Refusal as it is.
func RefusalOf(err error) error {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	for code, cause := range causes {
		if cause != nil && errors.Is(err, cause) {
			return &Refusal{wire.RefusalCode(code), err}
		}
	}
	return &Refusal{wire.RefusedMalformed, err}
}
