package mesh

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// dialsMax is the maximum number of concurrent dials of a node that joins, and demandDialsMax that of
	// dials on demand.
	dialsMax       = 4
	demandDialsMax = 8
	// dialsPerProcessor is the number of handshakes in progress for each processor of a host. With more
	// of them, handshakes wait for a processor for so long that QUIC repeats packets. A node may have at
	// least one dial in progress.
	dialsPerProcessor = 16
	// attemptMax is the longest time that a dial holds a token, on a host with processors for all dials that
	// its nodes may have in progress: the peer may not answer at all. With fewer processors it is longer, up to
	// crowdedAttemptMax.
	attemptMax        = time.Second
	crowdedAttemptMax = 10 * attemptMax
	// patienceShare divides the additional time of a dial on a crowded host: at 10 times as many nodes as dials in
	// progress, a dial may take four times as long.
	patienceShare = 3
	// peerDialWait is the time to wait on a crowded host for the dial of a peer that probably needs the link as well.
	peerDialWait = 2 * acceptingCheck
	// watchDelay is the longest time that a link for a watch waits on such a host for links that operations need.
	watchDelay = 5 * time.Second
)

// A dialLimit limits concurrent dials. When many nodes start on few processors and each
// dials many peers at once, handshakes take longer than QUIC waits for an answer, and most of
// the packets are repetitions.
type dialLimit struct {
	tokens chan struct{}
	holds  time.Duration // the longest time that a dial holds a token
}

// newDialLimit returns a limit of most dials for a node on a host, or fewer if it shares few processors with many other
// nodes of the view. Paths within a host need no handshake that takes a processor's time.
func newDialLimit(most int, v membership.View, host string, processors int, paths []Path) *dialLimit {
	if slices.ContainsFunc(paths, func(p Path) bool { return p.isLocal() }) {
		return &dialLimit{make(chan struct{}, most), attemptMax}
	}
	near := 0
	for _, n := range v.Nodes {
		if n.Host == host {
			near++
		}
	}
	all := dialsPerProcessor * processors
	near = max(near, 1)
	crowd := (near + all - 1) / all
	return &dialLimit{make(chan struct{}, max(1, min(most, all/near))), min(crowdedAttemptMax, time.Duration(crowd)*attemptMax)}
}

// isCrowded reports whether the host has more nodes than its processors can link at once.
func (l *dialLimit) isCrowded() bool { return l.holds > attemptMax }

// patience returns the timeout of a dial that is d on a host with processors for all of its nodes: handshakes take longer on a
// crowded one.
func (l *dialLimit) patience(d time.Duration) time.Duration {
	if l == nil {
		return d
	}
	crowd := int64(l.holds / attemptMax)
	return d + time.Duration(int64(d)*(crowd-1)/patienceShare)
}

// acquire waits for a token, which the caller releases after the dial. A dial that takes longer than
// holds loses its token to another one. Without a limit acquire does not wait.
func (l *dialLimit) acquire(ctx context.Context) (release func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	select {
	case l.tokens <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	once := sync.OnceFunc(func() { <-l.tokens })
	late := time.AfterFunc(l.holds, once)
	return func() { late.Stop(); once() }, nil
}

// isMutual reports whether the peer of a link probably needs it for the same purpose at the same time.
func isMutual(p link.Purpose) bool {
	return p == link.Collective || p == link.Waiting || p == link.Watching || p == link.Again
}

// delayWatch waits on a crowded host until a frame needs a link for a watch, or for watchDelay: after a change of the world few
// operations need new links, and many watches do. A peer has other watchers meanwhile.
func (l *dialLimit) delayWatch(ctx context.Context, watch *link.Link) {
	l.pause(ctx, watch, func(waited time.Duration) bool { return watch.IsNeeded() || waited >= watchDelay })
}

// letPeerDial waits for a connection of a peer before this node dials it, on a host with more nodes than its processors
// can link at once. Of two connections at the same time only that of the larger NodeID is used, and the other one would cost
// handshakes for nothing. accepting returns the number of connections of the peer.
func (d *dialer) letPeerDial(ctx context.Context, peer membership.NodeID, l *link.Link, limit *dialLimit, accepting func() int) {
	if bytes.Compare(d.reach.self[:], peer[:]) < 0 {
		limit.pause(ctx, l, func(waited time.Duration) bool {
			return waited >= limit.holds || waited >= peerDialWait && accepting() == 0
		})
	}
}

// pause waits on a crowded host until isOver, which it checks repeatedly, or until the link has a connection or ctx ends.
func (l *dialLimit) pause(ctx context.Context, pending *link.Link, isOver func(waited time.Duration) bool) {
	began, tick := time.Now(), time.NewTicker(acceptingCheck)
	defer tick.Stop()
	for l.isCrowded() && !isOver(time.Since(began)) {
		select {
		case <-tick.C:
		case <-pending.Settled():
			return
		case <-ctx.Done():
			return
		}
	}
}
