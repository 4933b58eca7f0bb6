package link

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/link/lane"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// An attachment is the one or two connections of a link until they end, with the goroutines that
// serve them. A link has one at a time, and may have several in turn; see Config.Detached.
type attachment struct {
	link  *Link
	cfg   Config // Bulk, Await, BulkOver, BulkPipes and Relay
	first *path

	named       laneSet                                    // preambles of the peer
	laneReaders [laneReadersMax]atomic.Pointer[laneReader] // that can be polled; the bulk lane last
	bulkReaders atomic.Int32                               // number of those of the bulk lane
	payloads    atomic.Pointer[path]                       // the path of the data and bulk lanes of this node

	writers sync.WaitGroup
	readers sync.WaitGroup
	life    context.Context
	done    <-chan struct{}    // of life
	cancel  context.CancelFunc // ends life, which makes run close the connections

	// Link.ending guards the fields below.
	claim    lane.Claim
	paths    []*path
	shut     bool          // no path may be added
	broke    error         // why a connection has ended
	released bool          // this side closes the connection, and the link stays
	asked    bool          // this side has asked the peer to close the connection, which is idle
	byeRead  chan struct{} // closed when the peer has read everything up to our goodbye
	left     chan struct{} // closed when everything up to the goodbye of the peer was read
	ended    chan struct{} // closed when the attachment has ended
	linger   *time.Timer   // closes the connection if the peer does not
	// The pipes for relay frames, until there are both.
	relaySender   transport.Sender
	relayReceiver transport.Receiver
}

func newAttachment(l *Link, first *path, cfg Config) *attachment {
	a := &attachment{
		link: l, cfg: cfg, first: first,
		byeRead: make(chan struct{}), left: make(chan struct{}), ended: make(chan struct{}),
	}
	first.of = a
	a.life, a.cancel = context.WithCancel(context.Background())
	a.done = a.life.Done()
	return a
}

// openedLanes are the pipes that this node has opened.
type openedLanes struct {
	second  *path // may be nil
	control transport.Sender
	rest    []transport.Sender // of openLanes; nil if the link awaits the second path
}

// openAll opens the pipes of openLanes according to the Config, beside the control lane.
func (a *attachment) openAll(ctx context.Context, control transport.Sender) (o openedLanes, err error) {
	if a.cfg.Bulk != nil && a.cfg.Await != nil || a.cfg.BulkPipes > wire.BulkPipesMax {
		panic("link: contradictory Config: both Bulk and Await, or invalid BulkPipes")
	}
	o = openedLanes{control: control}
	at := a.first
	if a.cfg.Bulk != nil {
		o.second = a.secondPath(a.cfg.Bulk)
		at = o.second
	}
	if a.cfg.Await == nil {
		if o.rest, err = a.openLanes(ctx, at); err != nil {
			return o, at.wrap(err)
		}
	}
	if p := transport.CapabilitiesOf(control).Prioritizer; p != nil {
		p.Prioritize()
	}
	return o, nil
}

// startLocked attaches the connections to the link and starts the goroutines. first, unless it
// is nil, is sent before the frames that wait on the control lane. The caller has accepted the control lane of the peer.
func (a *attachment) startLocked(o openedLanes, first []byte) {
	l := a.link
	a.paths = []*path{a.first}
	at := a.first
	if o.second != nil {
		at = o.second
		a.paths = append(a.paths, at)
	}
	l.attached.Store(a)
	l.exchange().connected.Store(true)
	l.exchange().control.open(a.first, o.control, first)
	if o.rest != nil {
		a.open(at, o.rest)
	}
	for i, p := range a.paths {
		accepted := 0
		if i == 0 {
			accepted = 1
		}
		a.readers.Go(func() { a.accept(a.life, p, accepted) })
	}
	if l.exchange().goodbye.Load() != nil { // The answer to it may be lost.
		a.readers.Go(a.noteRead)
	}
	go a.run()
}

// opening returns the beginning of the control lane: its preamble, and what this side has received.
func (a *attachment) opening(resume *wire.Resume) []byte {
	pre := wire.Preamble{Lane: wire.Control}
	if a.cfg.Bulk != nil {
		pre.Flags |= wire.PreambleApart
	}
	pre.Flags |= wire.PreambleResumes
	return resume.Append(pre.Append(nil))
}

// run waits for the end of the attachment, closes the connections, and waits for all other
// goroutines. Then the link becomes pending again or ends.
func (a *attachment) run() {
	defer close(a.ended)
	l := a.link
	<-a.done
	l.ending.Lock()
	a.shut = true
	l.ending.Unlock()
	for _, p := range a.paths {
		p.conn.Close()
	}
	for _, p := range a.paths {
		<-p.conn.Done()
	}
	x := l.exchange()
	x.control.detach()
	x.data.detach()
	x.bulk.stop()
	a.readers.Wait()
	x.data.detach() // A reader may have opened it.
	a.writers.Wait()
	x.grants.endRemote()
	if !a.detach() {
		l.end(a)
	}
}

// detach makes the link pending again. It reports false if the link must end.
func (a *attachment) detach() bool {
	l, x := a.link, a.link.exchange()
	l.ending.Lock()
	if a.linger != nil {
		a.linger.Stop()
	}
	var err error
	if !a.released && !(a.asked && errors.Is(a.broke, transport.ErrPeerClosed)) {
		err = cmp.Or(a.broke, errEnded)
	}
	may := l.common.detached != nil && !l.over.hasHappened() && !isClosed(a.left)
	l.ending.Unlock()
	if !may {
		return false
	}
	memory, purpose := l.MemorySharer(), l.Purpose()
	x.bulk.detach()
	x.grants.detach()
	l.fast.Store(false)
	l.ending.Lock()
	if l.over.hasHappened() {
		l.ending.Unlock()
		return false
	}
	l.settled.happen()
	l.settled = event{}
	x.session.End()
	l.purpose.Store(uint32(NoPurpose))
	l.common.detached(l, memory, purpose, err) // before another goroutine can need the next connection
	l.attached.Store(nil)
	l.ending.Unlock()
	l.renew()
	return true
}

// broken ends the attachment because a connection has ended or a pipe has failed. If the connection
// has ended, its own error is used.
func (a *attachment) broken(p *path, err error) {
	if a.awaitEnd(p, err) && p.conn.Err() != nil {
		err = p.conn.Err()
	}
	err = p.wrap(err)
	l := a.link
	l.ending.Lock()
	defer l.ending.Unlock()
	if a.broke == nil {
		a.broke = err
	}
	if l.common.detached == nil {
		l.failure = cmp.Or(l.failure, err)
		l.over.happen()
	}
	a.cancel()
}
