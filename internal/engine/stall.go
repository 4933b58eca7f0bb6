package engine

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/deadlock"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

const (
	// stallTick is the least time between two checks of calls that wait.
	stallTick = dozeMax
	// stallAfter is the time without progress after which a call asks the ranks that it waits for.
	stallAfter = 2 * stallTick
	// The time between two questions to a rank doubles from askFirst to askEvery. asksPerSecond
	// limits the questions of a node to all ranks.
	askFirst      = stallTick
	askEvery      = 4 * stallTick
	asksPerSecond = 100
	// A call without progress is logged after trace.LongAfter. The time to the next message doubles up to warnMax.
	warnMax = 60 * trace.LongAfter
	// namedMax limits the waits in an error, and the ranks that it describes.
	namedMax = 10
)

// A StallConfig has the limits of calls that make no progress.
type StallConfig struct {
	// MessageTimeout is the longest time that a message may wait for the call of a named rank, and
	// DeadlockTimeout the time after which a deadlock ends. 0 means no limit.
	MessageTimeout, DeadlockTimeout time.Duration
	Describer
	// Calls returns the number of remote calls that this node has begun, and whether one is in
	// progress.
	Calls func() (begun uint64, busy bool)
	Log   *slog.Logger
}

// A Describer describes calls that wait, for logs and errors.
type Describer interface {
	// Operation returns a call that waits as snapshots have it, without the ranks that it waits for.
	Operation(w *wire.Wait) trace.Operation
	// Deadlock describes a deadlock.
	Deadlock(e *DeadlockError) string
}

// WatchStalls makes the engine log calls that make no progress, limit the time of messages, and find
// deadlocks. It is called once, before the first communicator.
func (e *Engine) WatchStalls(cfg StallConfig) {
	e.stalls.Store(&stalls{cfg: cfg, engine: e, calls: make(map[waitKey]*stalledCall), peers: make(map[int]*peerWaits), askers: make(map[int]time.Time)})
}

// stalls has the calls of this node that make no progress, and the waits of other ranks.
type stalls struct {
	cfg    StallConfig
	engine *Engine

	mu    sync.Mutex
	now   time.Duration // sum of the times between checks, each up to tickCreditMax
	since time.Duration // since the last check
	epoch uint64
	own   waits
	state uint64 // of own
	calls map[waitKey]*stalledCall
	peers map[int]*peerWaits // by rank in the view
	found *foundDeadlock     // or nil
	asked uint64             // number of questions

	askers map[int]time.Time // by rank: when it has asked this node
}

// A stalledCall is a call without progress. Times are those of stalls.now.
type stalledCall struct {
	since    time.Duration // of the last progress
	progress uint64
	warnAt   time.Duration
	pause    time.Duration // to the next message
	seen     bool
	site     string // of siteOfLocked; empty: not known yet
}

// peerWaits has the last answer of a rank.
type peerWaits struct {
	open  []question    // that the rank has not answered, in the order of their numbers
	asked time.Duration // last
	pause time.Duration // to the next question
	at    time.Duration // when the answer arrived; 0 before the first
	to    question      // that it answers
	wire.Waits
	list []wire.Wait
	none wire.Wait // of a rank in no call
}

// questionsMax limits the questions to a rank without an answer that are remembered.
const questionsMax = 32

// A question is a [wire.Ask] to a rank. Its answer describes the rank at a time between the question and the
// arrival of the answer, which may be earlier than a later question.
type question struct {
	number uint64
	at     time.Duration
}

// silentAfter is the time without an answer after which a rank is reported as silent.
const silentAfter = 2*askEvery + stallTick

// isSilentLocked reports whether a rank has not answered for long.
func (s *stalls) isSilentLocked(p *peerWaits) bool {
	return len(p.open) > 0 && s.now-p.open[0].at >= silentAfter
}

// hasWaits reports whether a message, or a call for the next view, waits on a communicator of the program.
func (e *Engine) hasWaits() bool {
	if e.stalls.Load() == nil {
		return false
	}
	for _, c := range e.appendComms(nil) {
		c.mu.Lock()
		traced, inCall := c.traced != nil, len(c.worlds) > 0
		c.mu.Unlock()
		if traced && (inCall || c.messages.IsWaiting()) {
			return true
		}
	}
	return false
}

// watchStalls checks the calls that wait. The last call was so long ago. The time does not count for messages over
// the occupied links.
func (e *Engine) watchStalls(ago time.Duration, occupied map[*link.Link]bool) {
	s := e.stalls.Load()
	if s == nil {
		return
	}
	s.mu.Lock()
	ago = min(ago, tickCreditMax)
	s.now += ago
	if s.since += ago; s.since < stallTick {
		s.mu.Unlock()
		return
	}
	ago, s.since = s.since, 0
	s.mu.Unlock()
	own, ok := e.collect(s.cfg.Calls) // without s.mu: collect takes the locks of communicators
	for i := range own.list {
		own.list[i].countWait(ago)
	}
	for _, l := range own.links {
		if l != nil {
			l.CheckStall(ago)
		}
	}
	s.mu.Lock()
	fx := s.checkLocked(own, ok, ago, occupied)
	s.mu.Unlock()
	for _, f := range fx {
		f()
	}
}

// checkLocked applies the waits of this node, and returns the actions that are due. The last check was so long ago.
func (s *stalls) checkLocked(own waits, ok bool, ago time.Duration, occupied map[*link.Link]bool) (fx []func()) {
	if own.epoch != s.epoch {
		s.epoch, s.found = own.epoch, nil
		clear(s.peers)
	}
	s.own, s.state = own, own.state()
	for _, c := range s.calls {
		c.seen = false
	}
	var late []*wait
	check := func(w *wait) (due bool) {
		c := s.ageLocked(w)
		if w.timeout && occupied[own.link(int(w.wire.Peers[0].Rank))] {
			c.since, c.warnAt = min(c.since+ago, s.now), c.warnAt+ago
			w.wire.For = uint64(s.now - c.since)
		}
		switch {
		case w.timeout && s.cfg.MessageTimeout > 0 && s.now-c.since >= s.cfg.MessageTimeout:
			err := s.messageTimeoutLocked(w)
			fx = append(fx, func() { w.comm.expire(w.p2p.Number, err) })
		case s.now >= c.warnAt && !w.wire.Any:
			c.pause = min(2*c.pause, warnMax)
			c.warnAt = s.now + c.pause
			return true
		}
		return false
	}
	for i := range own.list {
		if w := &own.list[i]; check(w) {
			late = append(late, w)
		}
	}
	for i := range own.idle {
		if w := &own.idle[i]; check(w) {
			late = append(late, w)
		}
	}
	for k, c := range s.calls {
		if !c.seen {
			delete(s.calls, k)
		}
	}
	if !ok || len(own.list)+len(own.idle) == 0 {
		s.found = nil
		clear(s.peers)
		return fx
	}
	if len(late) > 0 {
		fx = append(fx, s.warningLocked(late[0], len(late)-1))
	}
	fx = append(fx, s.asksLocked()...)
	return append(fx, s.deadlockLocked()...)
}

// ageLocked sets the time since the last progress of a call.
func (s *stalls) ageLocked(w *wait) *stalledCall {
	c := s.calls[w.waitKey]
	if c == nil || c.progress != w.progress {
		c = &stalledCall{since: s.now, progress: w.progress, warnAt: s.now + trace.LongAfter, pause: trace.LongAfter}
		s.calls[w.waitKey] = c
	}
	c.seen = true
	w.wire.For = uint64(s.now - c.since)
	return c
}

// asksLocked returns the questions that are due: to the ranks that calls of this node wait for, and to
// higher ranks that these wait for, directly or by others. The lowest rank of a deadlock finds it from
// the answers of the others. A question makes a pending link connect only if a call of this node is logged.
func (s *stalls) asksLocked() (fx []func()) {
	round := s.roundLocked()
	var after time.Duration // A rank of a deadlock that was asked later is not asked soon again.
	urgent := make(map[int]bool)
	if f := s.found; f != nil && (!f.confirmed || f.due > 0) {
		after = max(f.since, f.due)
		for rank := range f.states {
			urgent[rank] = true
		}
	}
	asked, logged, late := map[int]bool{s.own.rank: true}, false, false
	ask := func(rank int, connect, sites bool) {
		l := s.own.link(rank)
		if asked[rank] || l == nil || !connect && l.IsPending() {
			return
		}
		asked[rank] = true
		p := s.peers[rank]
		if p == nil {
			p = new(peerWaits)
			s.peers[rank] = p
		}
		soon := urgent[rank] && p.asked <= after && s.now > after
		if p.pause > 0 && s.now-p.asked < p.pause && !soon {
			return
		}
		p.pause = max(round, min(max(askFirst, 2*p.pause), askEvery))
		p.asked = s.now
		s.asked++
		if len(p.open) == questionsMax { // The first one says how long the rank has been silent.
			p.open = slices.Delete(p.open, 1, 2)
		}
		p.open = append(p.open, question{s.asked, s.now})
		q := wire.Ask{Epoch: s.epoch, Number: s.asked, Sites: sites}
		fx = append(fx, func() { l.Ask(q) })
	}
	for _, list := range [][]wait{s.own.list, s.own.idle} {
		for i := range list {
			w := &list[i]
			age := time.Duration(w.wire.For)
			if age < stallAfter || w.wire.Any && s.own.busy { // This node is in no deadlock.
				continue
			}
			logged, late = logged || age >= trace.LongAfter && !w.wire.Any, late || age >= trace.StalledAfter
			eachPeer(&w.wire, len(s.own.links), func(rank int) { ask(rank, age >= trace.LongAfter, age >= trace.StalledAfter) })
		}
	}
	for _, rank := range s.closureLocked() {
		ask(rank, logged, late)
	}
	return fx
}

// roundLocked returns the time in which all ranks may be asked once.
func (s *stalls) roundLocked() time.Duration {
	return time.Duration(s.own.peers) * time.Second / asksPerSecond
}

// closureLocked returns the ranks above that of this node that it waits for, directly or by others.
func (s *stalls) closureLocked() (ranks []int) {
	unseen := deadlock.NewUnseen(len(s.own.links))
	add := func(w *wire.Wait) {
		eachRange(w, func(r deadlock.Range) {
			r.First = max(r.First, s.own.rank+1)
			unseen.Take(r, func(rank int) { ranks = append(ranks, rank) })
		})
	}
	for i := range s.own.list {
		if w := &s.own.list[i].wire; !w.Any || !s.own.busy {
			add(w)
		}
	}
	for i := 0; i < len(ranks); i++ { //nolint:intrange // add makes ranks longer.
		p := s.peers[ranks[i]]
		if p == nil || p.Busy {
			continue
		}
		for k := range p.list {
			add(&p.list[k])
		}
	}
	return ranks
}

// eachRange calls f with the ranks that w waits for, as ranges.
func eachRange(w *wire.Wait, f func(deadlock.Range)) {
	for _, p := range w.Peers {
		f(deadlock.Range{First: int(p.Rank), Last: int(p.Rank)})
	}
	for _, r := range w.Ranges {
		f(deadlock.Range{First: int(r.First), Last: int(r.Last)})
	}
}

// Ask implements [link.Handler]. It answers with the calls of this node that wait.
func (e *Engine) Ask(l *link.Link, q wire.Ask) {
	s := e.stalls.Load()
	if s == nil {
		return
	}
	own, ok := e.collect(s.cfg.Calls)
	if !ok {
		return
	}
	state := own.state()
	t := l.Traffic()
	none := e.noCall(&own, q.Sites)
	s.mu.Lock()
	first := s.noteAskerLocked(&own, l)
	list := make([]wire.Wait, len(own.list), len(own.list)+1)
	for i := range own.list {
		w := &own.list[i]
		list[i] = w.wire
		if c := s.calls[w.waitKey]; c != nil && c.progress == w.progress {
			list[i].For = uint64(s.now - c.since)
		}
		if w.wire.For = list[i].For; q.Sites {
			list[i].Site = s.siteOfLocked(w)
		}
		s.setStatesLocked(&list[i], &own)
	}
	s.mu.Unlock()
	if none != nil {
		list = append(list, *none)
	}
	b, complete := wire.AppendWaits(nil, list, wire.WaitsMax)
	l.AnswerAsk(wire.Waits{
		Epoch: own.epoch, Number: q.Number, Rank: uint32(own.rank), State: state, Busy: own.busy || !complete, Sent: t.Sent, Received: t.Received, First: uint32(first),
	}, b)
}

// quietLocked returns the State of the last answer of a rank, and whether all that the rank has sent
// before it has arrived here, and all that this node has sent until now had arrived there before it. What this node has sent
// after the question may be in flight.
func (s *stalls) quietLocked(rank int, own *waits) (state uint64, quiet bool) {
	p, l := s.peers[rank], own.link(rank)
	if p == nil || l == nil || p.at == 0 {
		return 0, false
	}
	t := l.Traffic()
	return p.State, p.Received >= t.Sent && t.Received >= p.Sent
}

// setStatesLocked sets the states of the peers of a wait of this node from their last answers.
func (s *stalls) setStatesLocked(w *wire.Wait, own *waits) {
	for k := range w.Peers {
		p := &w.Peers[k]
		p.State, p.Quiet = s.quietLocked(int(p.Rank), own)
	}
	w.States, w.Quiet = 0, w.Ranges != nil
	for _, r := range w.Ranges {
		for rank := r.First; rank <= r.Last; rank++ {
			if rank != w.Rank {
				state, quiet := s.quietLocked(int(rank), own)
				w.States += wire.StateDigest(rank, state)
				w.Quiet = w.Quiet && quiet
			}
		}
	}
}

// Waits implements [link.Handler].
func (e *Engine) Waits(l *link.Link, w wire.Waits, encoded []byte) {
	s := e.stalls.Load()
	if s == nil {
		return
	}
	list, err := wire.DecodeWaits(encoded)
	if err != nil {
		l.Fail(protocolError(err))
		return
	}
	s.mu.Lock()
	fx := s.answeredLocked(l, w, list)
	s.mu.Unlock()
	for _, f := range fx {
		f()
	}
}

// answeredLocked notes an answer, and returns the questions that follow from it. It ignores an answer to no open
// question: an answer to an earlier question than the last answered one, or of an earlier view.
func (s *stalls) answeredLocked(l *link.Link, w wire.Waits, list []wire.Wait) (fx []func()) {
	p := s.peers[int(w.Rank)]
	if p == nil || w.Epoch != s.epoch || s.own.link(int(w.Rank)) != l {
		return nil
	}
	i := slices.IndexFunc(p.open, func(q question) bool { return q.number == w.Number })
	if i < 0 {
		return nil
	}
	p.Waits, p.list, p.none, p.at, p.to = w, list, wire.Wait{}, s.now, p.open[i]
	if last := len(list) - 1; last >= 0 && list[last].Kind == wire.WaitNone {
		p.none, p.list = list[last], list[:last]
	}
	p.open = slices.Delete(p.open, 0, i+1)
	return s.asksLocked()
}

// messageTimeoutLocked returns the error of a message that has waited for too long.
func (s *stalls) messageTimeoutLocked(w *wait) *TimeoutError {
	world := s.clusterLocked()
	other := Waiting{Rank: w.comm.member(w.p2p.Peer), Doing: world.Doing(int(w.wire.Peers[0].Rank))}
	return &TimeoutError{Message: MessageName(w.p2p.Kind), After: s.cfg.MessageTimeout, Waiting: []Waiting{other}, Sentence: world.About(s.own.rank)}
}

// expire ends a message with err. A send that was offered ends the communicator.
func (c *Comm) expire(number uint64, err error) {
	cancel := c.messages.Expire(number, err)
	if cancel == nil {
		return
	}
	c.update(func(fx *effects) {
		if c.err == nil && cancel() {
			c.revokeLocked(fx, err, wire.Revoke{Cause: wire.CauseTimeout}, err.Error())
		}
	})
}
