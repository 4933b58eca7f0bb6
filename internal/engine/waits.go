package engine

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/nexar-go/nexar/internal/deadlock"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// A wait is a call in progress of this rank that needs other ranks and blocks a goroutine.
type wait struct {
	waitKey
	comm     *Comm
	waiters  *p2p.Waiters // nil if the call blocks its goroutine
	progress uint64
	timeout  bool     // Config.MessageTimeout applies
	p2p      p2p.Wait // of a message
	wire     wire.Wait
}

// A waitKey names a call: number is the sequence number of a collective, or that of a message among
// the messages of its communicator.
type waitKey struct {
	comm   uint64
	kind   uint8
	number uint64
}

func (k waitKey) compare(o waitKey) int {
	return cmp.Or(cmp.Compare(k.comm, o.comm), cmp.Compare(k.kind, o.kind), cmp.Compare(k.number, o.number))
}

// waits has the calls of this node that wait, at one time.
type waits struct {
	epoch uint64 // of the view
	rank  int    // in that view
	list  []wait
	idle  []wait       // no goroutine waits for them, except perhaps one by a channel
	local []wait       // see WorldWait.Local
	begun uint64       // number of calls
	busy  bool         // a call may end without another rank
	links []*link.Link // by rank in the view; nil without a link, and for this rank. The last is the highest rank of a communicator
	peers int          // number of links
}

// waitKinds has the kinds of waits of the kinds of messages.
var waitKinds = [...]uint8{p2p.Sent: wire.WaitSend, p2p.Got: wire.WaitRecv, p2p.Probed: wire.WaitProbe}

// link returns the link to a rank of the view, or nil.
func (w *waits) link(rank int) *link.Link {
	if rank < 0 || rank >= len(w.links) {
		return nil
	}
	return w.links[rank]
}

// collect returns the waits of this node in the newest view. It is ok if there is a communicator.
func (e *Engine) collect(calls func() (begun uint64, busy bool)) (w waits, ok bool) {
	e.mu.RLock()
	w.begun = e.retired
	e.mu.RUnlock()
	var comms []*Comm
	e.each(func(c *Comm) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.opened || c.traced == nil {
			return
		}
		comms = append(comms, c)
		w.epoch, ok = max(w.epoch, c.traced.Epoch), true
	})
	for _, c := range comms {
		c.mu.Lock()
		c.collectLocked(&w)
		c.mu.Unlock()
	}
	if calls != nil {
		begun, busy := calls()
		w.begun, w.busy = w.begun+begun, w.busy || busy
	}
	e.background.mu.Lock()
	for b := range e.background.of {
		w.busy = w.busy || !b.Any()
	}
	e.background.mu.Unlock()
	if len(w.list) == 0 && len(w.local) > 0 { // Otherwise the goroutine that it waits for may be in one of the other calls.
		w.list, w.busy = w.local, true
	}
	slices.SortFunc(w.list, func(a, b wait) int { return a.compare(b.waitKey) })
	return w, ok
}

// collectLocked adds the waits of a communicator. Those of an earlier view make the node busy: they
// end with that view.
func (c *Comm) collectLocked(w *waits) {
	current := c.traced.Epoch == w.epoch && c.err == nil
	if current {
		w.rank = c.viewRankLocked(c.rank)
		c.collectLinksLocked(w)
	}
	first := len(w.list)
	c.calls.each(func(op *Op) {
		waiters := c.background[op.call.Seq]
		switch {
		case op.state != running:
			return
		case !waiters.Any():
			w.busy = w.busy || waiters.IsWatched()
			return
		}
		moved, working := op.exec.ProgressLocked()
		ranks := op.exec.WaitsForLocked()
		if d, ok := op.exec.(exec.DeviceUser); working || ok && d.OnDeviceLocked() {
			w.busy = true
			return
		}
		n := wait{waitKey: waitKey{c.id, wire.WaitCollective, op.call.Seq}, comm: c, waiters: waiters, progress: moved}
		n.wire = wire.Wait{Kind: wire.WaitCollective, Call: op.call.Call}
		c.addWaitLocked(w, n, ranks)
	})
	// A collective that waits for an earlier one of this rank names no rank. It ends after that one.
	named := slices.ContainsFunc(w.list[first:], func(n wait) bool { return len(n.wire.Peers) > 0 })
	w.busy = w.busy || len(w.list) > first && !named
	w.list = slices.DeleteFunc(w.list, func(n wait) bool { return n.comm == c && len(n.wire.Peers) == 0 })
	begun, moving := c.messages.Waits(func(m p2p.Wait) {
		kind := waitKinds[m.Kind]
		n := wait{waitKey: waitKey{c.id, kind, m.Number}, comm: c, waiters: m.Waiters, p2p: m, timeout: m.Peer != p2p.Any}
		n.wire = wire.Wait{Kind: kind, Any: m.Peer == p2p.Any, Tag: m.Tag, Call: wire.Call{Comm: c.id, Type: m.Type, Count: uint64(m.Bytes)}}
		ranks := []int{m.Peer}
		if n.wire.Any {
			ranks = append(c.sendersLocked(), c.rank) // another goroutine of this rank may send, too
		}
		if c.addWaitLocked(w, n, ranks); m.Idle {
			w.busy = true
			last := len(w.list) - 1
			w.idle, w.list = append(w.idle, w.list[last]), w.list[:last]
		}
	})
	c.collectWorldLocked(w, begun+c.seq)
	w.begun += begun + c.seq
	w.busy = w.busy || moving || c.limited.Load() > 0 || c.onDevice.Load() > 0
	if !current && len(w.list) > first {
		w.busy, w.list = true, w.list[:first]
	}
}

// collectLinksLocked adds the links to the ranks of a communicator. It makes the list of the first one once, and leaves out
// communicators whose ranks it has, since nodes of large worlds collect waits often.
func (c *Comm) collectLinksLocked(w *waits) {
	first := w.links == nil
	switch {
	case first && c.inView != nil:
		w.links, w.peers = c.inView.links, c.inView.peers
		return
	case !first && w.peers == len(w.links)-1 && c.viewEndLocked() <= len(w.links):
		return
	}
	w.links = slices.Clone(w.links) // It may be that of a communicator.
	for rank := range c.linkTo {
		if more := c.viewRankLocked(rank) + 1 - len(w.links); more > 0 {
			w.links = append(slices.Grow(w.links, max(more, len(c.linkTo))), make([]*link.Link, more)...)
		}
	}
	for rank, l := range c.linkTo {
		if at := &w.links[c.viewRankLocked(rank)]; rank != c.rank && l != nil {
			if *at == nil {
				w.peers++
			}
			*at = l
		}
	}
	if first {
		c.inView = &viewLinks{w.links, w.peers}
	}
}

// viewLinks has the links to the ranks of a communicator, by their ranks in the view, and their number.
type viewLinks struct {
	links []*link.Link
	peers int
}

// viewEndLocked returns the rank in the view after the highest of the communicator.
func (c *Comm) viewEndLocked() int {
	if c.viewEnd == 0 {
		for rank := range c.linkTo {
			c.viewEnd = max(c.viewEnd, c.viewRankLocked(rank)+1)
		}
	}
	return c.viewEnd
}

// sendersLocked returns the other ranks that may send a message: those that have not left.
func (c *Comm) sendersLocked() []int {
	return slices.DeleteFunc(c.others(), func(rank int) bool {
		_, hasLeft := c.left[rank]
		return hasLeft
	})
}

func (c *Comm) addWaitLocked(w *waits, n wait, ranks []int) {
	n.wire.Rank = uint32(c.viewRankLocked(c.rank))
	if n.wire.Any {
		n.wire.Ranges = c.rangesLocked(ranks)
		w.list = append(w.list, n)
		return
	}
	n.wire.Peers = c.peersLocked(ranks...)
	w.list = append(w.list, n)
}

// peersLocked returns ranks of the communicator as those that a call waits for.
func (c *Comm) peersLocked(ranks ...int) (list []wire.WaitPeer) {
	for _, rank := range ranks {
		list = append(list, wire.WaitPeer{Rank: uint32(c.viewRankLocked(rank))})
	}
	return list
}

// rangesLocked returns the ranks in the view of ranks of the communicator.
func (c *Comm) rangesLocked(ranks []int) []wire.RankRange {
	list := make([]wire.RankRange, 0, 1)
	for _, r := range slices.Sorted(slices.Values(c.worldRanksLocked(ranks...))) {
		rank := uint32(r)
		if last := len(list) - 1; last >= 0 && rank <= list[last].Last+1 {
			list[last].Last = rank
		} else {
			list = append(list, wire.RankRange{First: rank, Last: rank})
		}
	}
	return list
}

// eachPeer calls f with the ranks below end that w waits for.
func eachPeer(w *wire.Wait, end int, f func(rank int)) {
	eachRange(w, func(r deadlock.Range) {
		for rank := r.First; rank <= r.Last && rank < end; rank++ {
			f(rank)
		}
	})
}

// viewRankLocked returns the rank in the view of a rank of the communicator.
func (c *Comm) viewRankLocked(rank int) int {
	if c.traced != nil && rank < len(c.traced.Ranks) {
		return c.traced.Ranks[rank]
	}
	return rank
}

// callsBegun returns the number of calls on the communicator, if it is traced.
func (c *Comm) callsBegun() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.traced == nil {
		return 0
	}
	begun, _ := c.messages.Waits(func(p2p.Wait) {})
	return begun + c.seq
}

// state returns a hash of the waits, their progress and the number of calls begun.
func (w *waits) state() uint64 {
	h := fnv.New64a()
	var b []byte
	add := func(values ...uint64) {
		for _, v := range values {
			b = binary.BigEndian.AppendUint64(b, v)
		}
	}
	add(w.epoch, w.begun, uint64(len(w.list)))
	if w.busy {
		add(1)
	}
	for i := range w.list {
		n := &w.list[i]
		add(n.comm.id, uint64(n.kind), n.number, n.progress)
		for _, p := range n.wire.Peers {
			add(uint64(p.Rank))
		}
		for _, r := range n.wire.Ranges {
			add(uint64(r.First), uint64(r.Last))
		}
	}
	_, _ = h.Write(b)
	return h.Sum64()
}

// InBackground says that the caller of [Op.Wait] is a goroutine in the background, on behalf of the
// goroutines of w. After Wait the caller calls [Comm.EndBackground] with the number of the operation.
func (op *Op) InBackground(w *p2p.Waiters) {
	c := op.comm
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.background == nil {
		c.background = make(map[uint64]*p2p.Waiters)
	}
	c.background[op.call.Seq] = w
}

// EndBackground ends [Op.InBackground].
func (c *Comm) EndBackground(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.background, number)
}

// DeviceWork adds n to the number of goroutines that wait for a device of this rank, before or after an operation. While
// it is positive, this rank counts as busy: the goroutines go on without another rank, and may make the calls that others wait for.
func (c *Comm) DeviceWork(n int) { c.onDevice.Add(int32(n)) }

// InBackground says that a goroutine in the background makes calls on behalf of the goroutines of w. As
// long as none of these waits, this rank counts as busy: its program may go on without the calls.
func (c *Comm) InBackground(w *p2p.Waiters) (done func()) {
	b := &c.engine.background
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = make(map[*p2p.Waiters]struct{})
	}
	b.of[w] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.of, w)
	}
}
