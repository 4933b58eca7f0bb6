package mesh

import (
	"context"
	"slices"
	"sync"
	"time"

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
	// attemptMax is the time after which a dial no longer counts, on a host with processors for all dials that
	// its nodes may have in progress: the peer may not answer at all. With fewer processors it is longer, up to
	// crowdedAttemptMax.
	attemptMax        = time.Second
	crowdedAttemptMax = 10 * time.Second
)

// A dialLimit limits concurrent dials. When many nodes start on few processors and each
// dials many peers at once, handshakes take longer than QUIC waits for an answer, and most of
// the packets are repetitions.
type dialLimit struct {
	tokens chan struct{}
	counts time.Duration // the time after which a dial no longer counts
}

// newDialLimit returns a limit of most dials, or fewer if the node shares few processors with many other nodes of
// the view. Paths within a host need no handshake that takes a processor's time.
func newDialLimit(most int, v membership.View, self, processors int, paths []Path) *dialLimit {
	if slices.ContainsFunc(paths, func(p Path) bool { return p.isLocal() }) {
		return &dialLimit{make(chan struct{}, most), attemptMax}
	}
	near := 0
	for _, n := range v.Nodes {
		if n.Host == v.Nodes[self].Host {
			near++
		}
	}
	all := dialsPerProcessor * processors
	crowd := time.Duration(max(1, near/all))
	return &dialLimit{make(chan struct{}, max(1, min(most, all/near))), min(crowdedAttemptMax, crowd*attemptMax)}
}

// crowded reports whether the host has more nodes than its processors can link at once.
func (l *dialLimit) crowded() bool { return l.counts > attemptMax }

// acquire waits until a dial may begin. The caller calls release after the dial, and another dial may
// begin after the time that a dial counts in any case. Without a limit acquire does not wait.
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
	late := time.AfterFunc(l.counts, once)
	return func() { late.Stop(); once() }, nil
}
