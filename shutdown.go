package nexar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/mesh"
)

// A ShutdownError says that a node has left before some of its peers had read all data that it had sent
// them. [Node.Shutdown] returns it.
type ShutdownError struct {
	// Peers are these peers, by rank.
	Peers []UnreadPeer
	// Err is the reason why the node did not wait for them any longer: the cause of the context, or [ErrClosed] after a call of
	// [Node.Close]. It is nil if the connections to all of them have broken.
	Err error
}

// An UnreadPeer is a peer that has not read all data that a node had sent it; see [ShutdownError].
type UnreadPeer struct {
	Rank int
	Node NodeID
	Addr string // of the node
}

func (e *ShutdownError) Error() string {
	peers := make([]string, len(e.Peers))
	for i, p := range e.Peers {
		peers[i] = fmt.Sprintf("rank %d (node %s at %s)", p.Rank, p.Node, p.Addr)
	}
	text := strings.Join(peers, ", ") + ": not all data that this node sent was read before it left"
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *ShutdownError) Unwrap() error { return e.Err }

// Shutdown leaves the cluster as [Node.Close] does, but waits until ctx ends, not only for some seconds, until the peers have
// read all data that this node has sent. If ctx ends first, the node leaves at once, and Shutdown returns a [ShutdownError] with
// the peers that have not finished; so it does if the connection to such a peer breaks. In a sparse topology it waits
// for peers behind relays no longer than Close does.
//
// Like Close, Shutdown ends the operations of this node that are in progress: call it after the last of them, as
// [net/http.Server.Shutdown] is called after the last request. A Close during a Shutdown limits its wait, and only one
// of several calls leaves; all return its result. Shutdown is no part of a panic: defer Close.
func (n *Node) Shutdown(ctx context.Context) error {
	d := &n.departure
	if d.until(ctx); len(d.unread) == 0 {
		return opError("shutdown", d.err)
	}
	e := &ShutdownError{Err: d.cause}
	for _, u := range d.unread {
		e.Peers = append(e.Peers, UnreadPeer{Rank: u.Rank, Node: NodeID(u.Node.ID), Addr: u.Node.Addr()})
	}
	slices.SortFunc(e.Peers, func(a, b UnreadPeer) int { return cmp.Compare(a.Rank, b.Rank) })
	return opError("shutdown", errors.Join(e, d.err))
}

// A departure is the end of a node. It happens once.
type departure struct {
	// leave leaves the cluster. It waits until ctx ends for peers that have not read all data, and returns those that have not.
	leave  func(ctx context.Context) (unread []mesh.Unread, err error)
	once   callback.Once
	unread []mesh.Unread
	cause  error // why leave did not wait longer
	err    error
	late   chan struct{} // closed by hurry
	hurry  func()        // ends the wait of leave
}

func newDeparture() departure {
	late := make(chan struct{})
	return departure{late: late, hurry: sync.OnceFunc(func() { close(late) })}
}

// until leaves, if that has not begun, and waits for peers until ctx ends or after hurry.
func (d *departure) until(ctx context.Context) {
	d.once.Do(func() {
		ctx, cancel := context.WithCancelCause(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			select {
			case <-d.late:
				cancel(ErrClosed)
			case <-ctx.Done():
			}
		}()
		d.unread, d.err = d.leave(ctx)
		d.cause = context.Cause(ctx)
		cancel(nil)
		<-ended
	})
}

// within is until with a limit, which also ends the wait of a departure that has begun.
func (d *departure) within(limit time.Duration) error {
	timer := time.AfterFunc(limit, d.hurry)
	defer timer.Stop()
	d.until(context.Background())
	return d.err
}
