package nexar

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/rendezvous/server"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// opError adds the package and the operation to an error, at the edge of the
// API and nowhere else.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nexar: %s: %w", op, err)
}

// errClosedHere is the error of calls after this rank has closed the communicator or its node. The close of another rank is a
// [PeerError] or a [RevokedError].
var errClosedHere = fmt.Errorf("%w by this rank", ErrClosed)

// A kindError is an error that is also some sentinels of this package, which its text need not
// name.
type kindError struct {
	error
	kinds []error
}

func (e *kindError) Unwrap() []error { return append(e.kinds[:len(e.kinds):len(e.kinds)], e.error) }

// explainJoin adds the sentinel of this package to an error of joining. The text stays.
func explainJoin(err error) error {
	if e := notFormed(err); e != nil {
		return e
	}
	_, isVersion := errors.AsType[*wire.VersionError](err)
	var kind error
	switch {
	case errors.Is(err, handshake.ErrToken) || errors.Is(err, handshake.ErrFalseSeed):
		kind = ErrToken
	case errors.Is(err, handshake.ErrVersion) || isVersion:
		kind = ErrVersion
	case errors.Is(err, handshake.ErrTopology) || errors.Is(err, handshake.ErrWorldSize):
		kind = ErrConfig
	case errors.Is(err, membership.ErrRank):
		kind = ErrRankTaken
	default:
		return err
	}
	return &kindError{err, []error{kind}}
}

// notFormed returns the NotFormedError for an err of a node or seed whose world did not form, with the nodes
// that had joined as far as they are known. It returns nil for any other err.
func notFormed(err error) error {
	failed, isFailed := errors.AsType[*client.FailedError](err)
	waiting, isWaiting := errors.AsType[*client.WaitingError](err)
	ended, isEnded := errors.AsType[*membership.NotFormedError](err)
	var p membership.Progress
	switch {
	case isFailed:
		p = failed.Progress
	case isWaiting && errors.Is(err, ErrNotFormed):
		p = waiting.Progress
	case isEnded:
		p = ended.Progress
	case !errors.Is(err, ErrNotFormed) && !errors.Is(err, server.ErrNotFormed):
		return nil
	}
	e := &NotFormedError{Joined: int(p.Joined), World: int(p.World), Err: err}
	for _, c := range p.Candidates {
		e.Nodes = append(e.Nodes, JoinedNode{Rank: int(c.Rank), Node: NodeID(c.ID), Name: c.Name, Addr: c.Addr})
	}
	return e
}

// cancelled is the error of a call with a context that has ended: the error of the
// context and, if there is another one, its cause.
func cancelled(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// cancelledBy is cancelled with the ranks that the call waited for, if err has them.
func cancelledBy(ctx context.Context, err error) error {
	public := cancelled(ctx)
	if e, ok := errors.AsType[*engine.DeadlineError](err); ok {
		return &DeadlineError{Waiting: e.Waiting, Sentence: e.Sentence, Err: public}
	}
	return public
}

// ended is the error of a call on a communicator that has ended with cause.
func (c *Comm) ended(cause error) error {
	why := c.translate(cause)
	switch e := why.(type) { //nolint:errorlint // translate returns these errors unwrapped
	case *RevokedError:
		return e
	case *PeerError:
		if e.Suspects != nil {
			return &RevokedError{Rank: -1, Err: e}
		}
		return &RevokedError{Rank: e.Rank, Err: e}
	case *MismatchError:
		return &RevokedError{Rank: e.Rank, Err: e}
	case *DeadlockError:
		return &RevokedError{Rank: -1, Err: e}
	case *TimeoutError:
		return &RevokedError{Rank: c.impl.Rank, Err: fmt.Errorf("its call took too long: %s %s", e.Op, e.Error())}
	case nil:
		return &RevokedError{Rank: c.impl.Rank, Err: fmt.Errorf("its call was cancelled: %s", cause.Error())}
	}
	return why
}

// translate turns an error of the engine into one of this package, with ranks of this communicator. It returns nil for
// one that is not the engine's, or that names a rank which is not in this communicator. It is pure: it neither waits nor sends.
func (c *Comm) translate(err error) error {
	if errors.Is(err, engine.ErrClosed) {
		return errClosedHere
	}
	switch e := err.(type) { //nolint:errorlint // the engine returns its errors unwrapped
	case *engine.PeerError:
		if rank, ok := c.impl.Engine.RankOf(e.Rank); ok {
			return c.peerError(rank, e.Left, e.Err)
		}
	case *mesh.UnreachableError:
		if rank := c.impl.RankOf(e.Node); rank >= 0 {
			return c.peerError(rank, false, e.Err)
		}
	case *engine.MismatchError:
		rank, isOurs := c.impl.Engine.RankOf(e.Rank)
		peer, isTheirs := c.impl.Engine.RankOf(e.Peer)
		if isOurs && isTheirs {
			return &MismatchError{Rank: rank, Peer: peer, Call: describe(e.Ours), PeerCall: describe(e.Theirs)}
		}
	case *engine.RevokedError:
		return c.revokedError(e)
	case *engine.TimeoutError:
		return c.timeoutError(e)
	case *engine.DeadlockError:
		return deadlockError(e)
	case *p2p.MisfitError:
		return misfit(e)
	}
	return nil
}

// misfit is the error of a message that does not fit its receive.
func misfit(e *p2p.MisfitError) error {
	sent, receiving := collective.TypeName(e.Sent), collective.TypeName(e.Receiving)
	switch {
	case e.Sent != e.Receiving && e.Refused:
		return fmt.Errorf("%w: %v to rank %d, which has a buffer of %v", ErrTypeMismatch, sent, e.Rank, receiving)
	case e.Sent != e.Receiving:
		return fmt.Errorf("%w: %v from rank %d, for a buffer of %v", ErrTypeMismatch, sent, e.Rank, receiving)
	case e.Size > e.Room && e.Refused:
		return fmt.Errorf("%w: %d bytes to rank %d, which has room for %d", ErrTruncated, e.Size, e.Rank, e.Room)
	case e.Size > e.Room:
		return fmt.Errorf("%w: %d bytes from rank %d, room for %d", ErrTruncated, e.Size, e.Rank, e.Room)
	case e.Refused:
		return fmt.Errorf("%w: %d bytes to rank %d, whose elements are of another size", ErrTypeMismatch, e.Size, e.Rank)
	}
	return fmt.Errorf("%w: %d bytes from rank %d, which is no whole number of elements of %d bytes", ErrTypeMismatch, e.Size, e.Rank, e.Elem)
}

// A translator is how internal/comm gets the errors of this package.
type translator struct{}

// Translate implements comm.Errors.
func (translator) Translate(c *comm.Comm, err error) error {
	return cmp.Or((&Comm{impl: c}).translate(err), err)
}

// Ended implements comm.Errors.
func (translator) Ended(c *comm.Comm, cause error) error { return (&Comm{impl: c}).ended(cause) }

// Operation implements engine.Describer.
func (translator) Operation(w *wire.Wait) trace.Operation { return collective.WaitOperation(w) }

// Deadlock implements engine.Describer.
func (translator) Deadlock(e *engine.DeadlockError) string { return deadlockError(e).Error() }

// peerError is the error for the failure of a rank. If the rank was lost, it names the cause if that is known by now: see [comm.AwaitCause].
func (c *Comm) peerError(failed int, left bool, failure error) *PeerError {
	rank, suspects, err := c.impl.LossOf(failed, failure)
	n := c.impl.Nodes[rank]
	p := &PeerError{Rank: rank, Node: NodeID(n.ID), Addr: n.Addr(), Left: left, Err: err}
	for _, s := range suspects {
		p.Suspects = append(p.Suspects, Suspect{Rank: c.impl.RankOf(s.Node.ID), Node: NodeID(s.Node.ID), Addr: s.Node.Addr(), Err: s.Err})
	}
	return p
}

// revokedError is the error for a revocation by another rank, or nil if the communicator does not contain that.
func (c *Comm) revokedError(e *engine.RevokedError) error {
	by, ok := c.impl.Engine.RankOf(e.Rank)
	if !ok {
		return nil
	}
	cause := errors.New(e.Text)
	switch e.Cause {
	case wire.CauseCancelled:
		cause = fmt.Errorf("its call was cancelled: %s", e.Text)
	case wire.CauseTimeout:
		cause = fmt.Errorf("its call took too long: %s", e.Text)
	case wire.CauseClosed:
		cause = fmt.Errorf("it has closed the communicator: %s", e.Text)
	case wire.CauseFailed, wire.CauseLeft:
		if peer, ok := c.impl.Engine.RankOf(e.Peer); ok {
			left := e.Cause == wire.CauseLeft
			if left {
				cause = transport.ErrPeerClosed
			}
			return &RevokedError{Rank: peer, Err: c.peerError(peer, left, cause)}
		}
	case wire.CauseRemoved, wire.CauseExcluded:
		excluded := e.Cause == wire.CauseExcluded
		switch {
		case by == c.impl.Rank: // The seed has said so.
		case excluded:
			cause = fmt.Errorf("rank %d has excluded this node from the world", by)
		default:
			cause = fmt.Errorf("the seed has removed this node from the world, as rank %d reports", by)
		}
		return &RevokedError{Rank: -1, Err: removedError(cause, excluded)}
	default:
	}
	return &RevokedError{Rank: by, Err: cause}
}

// timeoutError is the error of a call that has waited for ranks of this communicator.
func (c *Comm) timeoutError(e *engine.TimeoutError) *TimeoutError {
	t := &TimeoutError{Op: e.Message, After: e.After, Sentence: e.Sentence}
	if t.Op == "" {
		t.Call = describe(e.Call)
		t.Op = t.Call.Op
	}
	for _, w := range e.Waiting {
		rank, ok := c.impl.Engine.RankOf(w.Rank)
		if !ok {
			continue
		}
		n := c.impl.Nodes[rank]
		late := LateRank{Rank: rank, Node: NodeID(n.ID), Addr: n.Addr(), Answered: w.Known, Active: w.Active, Unresponsive: w.Unresponsive, Elapsed: w.For, Silent: w.Silent, Doing: w.Doing}
		if w.Known {
			late.Call = describe(w.Last)
		}
		t.Waiting = append(t.Waiting, rank)
		t.Late = append(t.Late, late)
	}
	return t
}

// describe makes a fingerprint readable.
func describe(c wire.Call) Call {
	o := collective.Describe(c)
	return Call{Op: o.Op, Seq: o.Seq, Type: o.Type, Length: o.Length, Counts: o.Counts, Reduce: o.Reduce, Root: o.Root, Plan: o.Plan}
}
