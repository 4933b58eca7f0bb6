package mesh

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// dialsMax is the maximum number of concurrent dials of a node that joins.
	dialsMax = 4
	// dialsPerProcessor is the number of handshakes in progress for each processor of a host. With more
	// of them, handshakes wait for a processor for so long that QUIC repeats packets. A node may have at
	// least one dial in progress.
	dialsPerProcessor = 16
	// attemptMax is the time after which a dial no longer counts: its peer may not answer at all.
	attemptMax = time.Second
)

// dialsOn returns the number of concurrent dials of a node that joins, on a host with some processors that
// it shares with other nodes of the view. Paths within a host need no handshake that takes a processor's time.
func dialsOn(v membership.View, self, processors int, paths []Path) int {
	if slices.ContainsFunc(paths, func(p Path) bool { return p.isLocal() }) {
		return dialsMax
	}
	near := 0
	for _, n := range v.Nodes {
		if n.Host == v.Nodes[self].Host {
			near++
		}
	}
	return max(1, min(dialsMax, dialsPerProcessor*processors/near))
}

// A dialLimit limits concurrent dials. When many nodes start on few processors and each
// dials many peers at once, handshakes take longer than QUIC waits for an answer, and most of
// the packets are repetitions.
type dialLimit struct{ tokens chan struct{} }

func newDialLimit(n int) dialLimit { return dialLimit{make(chan struct{}, n)} }

// acquire waits until a dial may begin. The caller calls release after the dial, and another dial may
// begin after attemptMax in any case.
func (l dialLimit) acquire(ctx context.Context) (release func(), err error) {
	select {
	case l.tokens <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	once := sync.OnceFunc(func() { <-l.tokens })
	late := time.AfterFunc(attemptMax, once)
	return func() { late.Stop(); once() }, nil
}
