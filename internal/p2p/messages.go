// Package p2p has the messages of a communicator: what its rank sends and receives, and
// what has arrived before a receive asked for it. Package match says which receive a
// message goes to.
package p2p

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p/match"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
)

// Any is the source or the tag of a receive that takes every message.
const Any = match.Any

// An Owner is the communicator that messages belong to. Messages calls it without
// locks.
type Owner interface {
	// CancelIf ends the communicator because the context of a call has ended with
	// cause, unless the communicator has ended already or cancel returns false. If
	// cancel returns true, [Messages.Fail] must follow before any [Messages.Leave]:
	// the call ends only by that.
	CancelIf(cancel func() bool, cause error)
	// Go calls f on a goroutine of its own, or at once if the communicator has ended.
	Go(f func())
	// Spawn calls f on a goroutine of its own, which the owner waits for.
	Spawn(f func())
}

// A Clock gives the times at which messages begin and end.
type Clock interface {
	Stamp() int64
	StampEnd(begun int64) int64
}

// Config configures Messages.
type Config struct {
	Comm     uint64 // the number of the communicator
	EagerMax int    // longer payloads are granted by their receiver
	Owner    Owner
	Poller   *poll.Poller
	Clock    Clock
}

// Messages are the messages of one communicator: sends and receives under way, and
// messages that have arrived and wait for a receive.
//
// Frames may arrive before Open, and are kept. A transition happens under the lock and
// returns effects, which perform carries out without it.
type Messages struct {
	cfg      Config
	received atomic.Pointer[func()] // called when a message arrives
	receives sync.Pool              // of Receives for later ones

	mu        sync.Mutex
	freed     sync.Cond // releasing has become 0
	opened    bool
	links     []*link.Link
	ranks     []int       // all of them
	rankOf    map[int]int // by the number of the peer
	err       error       // why no call may begin
	left      map[int]error
	lastLeft  error // of the rank that left last
	matcher   match.Matcher[*Receive, arrival]
	unopened  []arrival               // arrived before Open
	refused   map[*link.Link]struct{} // see Refuse
	probes    []*probe
	receiving map[*Receive]struct{} // with a granted payload under way
	claimed   []*Receive            // with a payload under way that needs no grant; see Claim
	sends     map[uint64]*Sending   // that wait for a grant, or have one
	lastSend  uint64
	releasing int // sends and receives that have failed but still use their buffers
	recording bool
	past      recorder.Ring[Record]
}

// New makes the messages of a communicator.
func New(cfg Config) *Messages {
	m := &Messages{
		cfg: cfg, left: make(map[int]error),
		receiving: make(map[*Receive]struct{}), sends: make(map[uint64]*Sending),
	}
	m.freed.L = &m.mu
	return m
}

// Open sets the ranks of the communicator: the link to each, and the rank of each
// peer. Messages of other peers that have arrived by now are dropped.
func (m *Messages) Open(links []*link.Link, rankOf map[int]int) {
	m.mu.Lock()
	m.opened, m.links, m.rankOf = true, links, rankOf
	for rank := range links {
		m.ranks = append(m.ranks, rank)
	}
	early := m.unopened
	m.unopened = nil
	var fx Effects
	for _, a := range early {
		rank, ok := rankOf[a.link.Peer]
		if !ok {
			fx.effects = append(fx.effects, effect{kind: drop, link: a.link, payload: a.payload})
			continue
		}
		a.source = rank
		m.matcher.Keep(rank, a.tag, a)
		m.probedLocked(&fx, &a)
	}
	m.mu.Unlock()
	m.Perform(&fx)
}

// Refuse drops the messages that have arrived over a link before Open, and those that still
// arrive before it. It adds to the effects.
func (m *Messages) Refuse(fx *Effects, l *link.Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened {
		return
	}
	if m.refused == nil {
		m.refused = make(map[*link.Link]struct{})
	}
	m.refused[l] = struct{}{}
	m.unopened = slices.DeleteFunc(m.unopened, func(a arrival) bool {
		if a.link == l {
			fx.effects = append(fx.effects, effect{kind: drop, link: a.link, payload: a.payload})
		}
		return a.link == l
	})
}

// OnMessage has f called when a message has arrived that no receive waited for.
func (m *Messages) OnMessage(f func()) { m.received.Store(&f) }

// Waiting is the number of messages that no receive has asked for.
func (m *Messages) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.matcher.Queued() + len(m.unopened)
}

// CloseIdle lets no call begin any more, which fails with err, unless a granted payload
// is under way to this rank, or, if alsoSends, a message waits to be taken from it. It
// reports whether none does.
func (m *Messages) CloseIdle(alsoSends bool, err error) (idle bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.receiving) > 0 || alsoSends && len(m.sends) > 0 {
		return false
	}
	m.err = err
	return true
}

// Effects are what a transition leaves to be done, by Perform.
type Effects struct {
	effects  []effect
	releases []released
}

// A released receive or send, of which one is nil, ends with err when its buffers are
// free.
type released struct {
	receive *Receive
	send    *Sending
	err     error
}

// Perform carries effects out. The lock of the owner must not be held.
func (m *Messages) Perform(fx *Effects) {
	for i := range fx.effects {
		m.do(&fx.effects[i])
	}
	for _, r := range fx.releases {
		m.cfg.Owner.Spawn(func() { m.release(r) })
	}
}

// Fail ends everything that is under way with err, and lets no call begin any more,
// which fails with later. It adds to the effects. Await returns when no buffer is in use any more.
func (m *Messages) Fail(fx *Effects, err, later error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = later
	}
	m.failReceivesLocked(fx, err, func(int) bool { return true })
	m.failReceivingLocked(fx, err, func(*Receive) bool { return true })
	m.failSendsLocked(fx, err, func(*Sending) bool { return true })
	for _, a := range append(m.matcher.ClearMessages(), m.unopened...) {
		fx.effects = append(fx.effects, effect{kind: drop, link: a.link, payload: a.payload})
	}
	m.unopened = nil
}

// Await blocks until nothing that has failed uses its buffers any more.
func (m *Messages) Await() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.releasing > 0 {
		m.freed.Wait()
	}
}

// Leave ends calls that need a rank that has left, with err. It adds to the effects. All
// messages of the rank have arrived. If its link has ended, payloads under way fail, too;
// otherwise those that were granted are still carried out.
func (m *Messages) Leave(fx *Effects, rank int, err error, linkEnded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	m.left[rank], m.lastLeft = err, err
	m.failReceivesLocked(fx, err, func(source int) bool {
		return source == rank || source == Any && m.isAloneLocked()
	})
	if linkEnded {
		m.failReceivingLocked(fx, err, func(r *Receive) bool { return r.got.Source == rank })
	}
	m.failSendsLocked(fx, err, func(s *Sending) bool {
		return s.rank == rank && (linkEnded || s.transfer.Grant == 0)
	})
}

// isAloneLocked reports whether all other ranks have left.
func (m *Messages) isAloneLocked() bool { return len(m.left) > 0 && len(m.left) == len(m.links)-1 }

// beginLocked returns why no message can be sent to, or received from, a rank or Any.
func (m *Messages) beginLocked(rank int) error {
	switch {
	case m.err != nil:
		return m.err
	case rank == Any && m.isAloneLocked():
		return m.lastLeft
	}
	if len(m.left) == 0 {
		return nil
	}
	return m.left[rank]
}

// failReceivesLocked ends the receives and probes that wait for a message from one of
// the sources in is, which is called with Any for those from any source.
func (m *Messages) failReceivesLocked(fx *Effects, err error, is func(source int) bool) {
	for _, r := range m.matcher.ClearReceives(is) {
		var e effect
		m.endReceiveLocked(&e, r, err)
		fx.effects = append(fx.effects, e)
	}
	m.endProbesLocked(fx, func(p *probe) bool {
		if !is(p.source) {
			return false
		}
		p.err = err
		return true
	})
}

// failReceivingLocked ends receives whose payload is under way, as soon as their
// buffers are free.
func (m *Messages) failReceivingLocked(fx *Effects, err error, is func(r *Receive) bool) {
	m.eachReceivingLocked(func(r *Receive) {
		if is(r) {
			m.noLongerLocked(r)
			m.releasing++
			fx.releases = append(fx.releases, released{receive: r, err: err})
		}
	})
}

// failSendsLocked does the same for sends.
func (m *Messages) failSendsLocked(fx *Effects, err error, is func(s *Sending) bool) {
	for id, s := range m.sends {
		if is(s) {
			delete(m.sends, id)
			m.releasing++
			fx.releases = append(fx.releases, released{send: s, err: err})
		}
	}
}

// noLongerLocked removes r from the receives whose payload is under way, and reports
// whether it was one of them.
func (m *Messages) noLongerLocked(r *Receive) bool {
	if i := slices.Index(m.claimed, r); i >= 0 {
		m.claimed = slices.Delete(m.claimed, i, i+1)
		return true
	}
	_, ok := m.receiving[r]
	delete(m.receiving, r)
	return ok
}

// isReceivingLocked reports whether the payload of r is under way.
func (m *Messages) isReceivingLocked(r *Receive) bool {
	_, granted := m.receiving[r]
	return granted || slices.Contains(m.claimed, r)
}

// eachReceivingLocked calls f for the receives whose payload is under way.
func (m *Messages) eachReceivingLocked(f func(r *Receive)) {
	for r := range m.receiving {
		f(r)
	}
	for _, r := range slices.Clone(m.claimed) {
		f(r)
	}
}

// await blocks until ended has a value from a rank, or any, or ctx ends, and then
// reports false.
func (m *Messages) await(ctx context.Context, ended <-chan struct{}, rank int) bool {
	if rank == Any {
		return m.cfg.Poller.Wait(ctx, ended, m.ranks)
	}
	return m.cfg.Poller.Wait(ctx, ended, m.ranks[rank:rank+1])
}

// The kinds of effects.
const (
	wake    uint8 = iota + 1 // a call has ended
	deliver                  // a payload is copied to a receive, which has ended
	grant                    // the payload of a receive may be sent
	refuse                   // a receive has ended that has no room for the message
	drop                     // a message is dropped
)

// An effect is what a transition leaves to be done without the lock.
type effect struct {
	kind    uint8
	ended   chan struct{} // of the call that has ended
	receive *Receive
	link    *link.Link
	payload []byte
	offer   uint64
	grant   uint64
	more    *Effects // further effects
}

// do carries out one effect. It is the only place from which messages are granted and
// refused, and callers woken.
func (m *Messages) do(e *effect) {
	switch e.kind {
	case deliver:
		if e.receive.err == nil {
			e.receive.buf.fill(e.payload)
		}
		e.link.Consumed(wire.Messages, len(e.payload))
	case grant:
		e.link.GrantOffer(wire.OfferGrant{Comm: m.cfg.Comm, ID: e.offer, Grant: e.grant})
	case refuse:
		r := e.receive
		e.link.RefuseOffer(wire.OfferRefuse{Comm: m.cfg.Comm, ID: e.offer, Room: uint64(r.buf.Len()), Type: r.typ})
	case drop:
		if e.payload != nil {
			e.link.Consumed(wire.Messages, len(e.payload))
		} else {
			e.link.Dropped()
		}
	}
	if e.ended != nil {
		e.ended <- struct{}{}
	}
	if e.more != nil {
		m.Perform(e.more)
	}
}

// release takes the buffers of a failed receive or send back, and ends it.
func (m *Messages) release(r released) {
	if r.receive != nil {
		r.receive.from.Ungrant(&r.receive.sink)
	} else {
		m.links[r.send.rank].Recall(&r.send.transfer)
	}
	var e effect
	m.mu.Lock()
	if r.receive != nil {
		m.endReceiveLocked(&e, r.receive, r.err)
	} else {
		m.endSendLocked(&e, r.send, r.err)
	}
	m.releasing--
	m.freed.Broadcast()
	m.mu.Unlock()
	m.do(&e)
}
