package link

import (
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// attendTime is the time that a lane stays attended after polling. For up to twice that time,
// an arriving frame may wake no goroutine.
const attendTime = time.Millisecond

// A Polling is inline polling: a waiting goroutine handles the frames of the lanes itself, in
// place of the link's own goroutines, which saves waking them. It polls the bulk lane while
// this node has open grants, and writes the transfers that the peer has granted. The data lane comes first: most waits end with the
// first look at it.
//
// Call [Link.StartPolling], then Poll repeatedly, then Stop or Pause, all on one goroutine.
// Lanes that another goroutine polls are not polled twice.
type Polling struct {
	link    *Link
	of      *attachment // nil if the link is pending
	readers [laneReadersMax]*laneReader
	n       int
	bulk    int  // readers of the bulk lane
	at      int  // index of the reader that Poll has read last; -1 after the transfers
	polls   int  // calls of Poll
	writes  bool // counted in bulk.pollers
	paused  bool // counted in Link.paused
}

// idleBulkPolls is the number of calls of Poll per check of a bulk lane without open grants.
// Its end may arrive, or the rest of a payload with a withdrawn grant.
const idleBulkPolls = 16

// StartPolling begins inline polling with p, which must be zero. It reports whether Poll can do anything.
func (l *Link) StartPolling(p *Polling) (useful bool) {
	p.link, p.of, p.at = l, l.attached.Load(), -1
	if p.acquire(int(wire.Data)); p.n == 0 {
		p.acquireRest() // The goroutine that has the data lane may release it soon.
	}
	return p.n > 0 || p.writes
}

// acquireRest takes the lanes behind the data lane, and those that another goroutine has released.
func (p *Polling) acquireRest() {
	for i := range int(wire.Bulk) {
		p.acquire(i)
	}
	if b := &p.link.exchange().bulk; !p.writes && b.pushable.Load() {
		p.writes = true
		b.pollers.Add(1)
	}
}

// acquire takes a reader that no other goroutine owns.
func (p *Polling) acquire(i int) {
	if p.of == nil {
		return
	}
	r := p.of.laneReaders[i].Load()
	if r == nil || slices.Contains(p.readers[:p.n], r) || !r.tryAcquire() {
		return
	}
	if r.failed != nil {
		r.release()
		return
	}
	r.attend()
	p.readers[p.n] = r
	p.n++
	if r.lane == wire.Bulk {
		p.bulk++
	}
}

// Cheap reports whether Poll makes no system calls, since frames are exchanged through shared memory.
func (p *Polling) Cheap() bool { return p.link.MemorySharer() != nil }

// Poll handles arrived frames and writes as much as the pipes take. It does not block, and reports
// whether it did anything. After a frame on the control or data lane it returns
// immediately, since the caller may wait for that frame; the next call continues with the next
// lane.
func (p *Polling) Poll() (some bool) {
	granted := p.link.exchange().grants.some.Load() > 0
	if granted && p.of != nil && p.bulk < int(p.of.bulkReaders.Load()) {
		for i := int(wire.Bulk); i < laneReadersMax; i++ {
			p.acquire(i)
		}
	}
	p.polls++
	for range p.n + 1 { // the readers, then the transfers
		p.at++
		if p.at >= p.n {
			p.at = -1
			p.acquireRest()
			some = p.writes && p.link.exchange().bulk.busy.Load() && p.link.push() > 0 || some
			continue
		}
		r := p.readers[p.at]
		if r.lane == wire.Bulk && !granted && p.polls%idleBulkPolls != 0 {
			continue
		}
		handled, err := r.handle(false)
		if err != nil {
			p.failReader(r, err)
		}
		if some = some || handled; handled && r.lane != wire.Bulk {
			return true
		}
	}
	return some
}

// failReader releases the current reader because of an error.
func (p *Polling) failReader(r *laneReader, err error) {
	p.n--
	p.readers[p.at] = p.readers[p.n]
	p.at--
	if r.lane == wire.Bulk {
		p.bulk--
	}
	r.fail(err)
}

// Pause returns the lanes to the link's own goroutines, those too that other pollings keep attended. The caller is about to sleep, and must
// still call Stop.
func (p *Polling) Pause() {
	p.paused = true
	p.link.paused.Add(1)
	p.release(false)
	p.link.Unattend()
}

// release gives up what was acquired. With soon the lanes stay attended.
func (p *Polling) release(soon bool) {
	for _, r := range p.readers[:p.n] {
		if soon {
			r.keepAttended()
		} else {
			r.unattend()
		}
		r.release()
	}
	p.n, p.bulk = 0, 0
	if p.writes {
		p.writes = false
		p.link.exchange().bulk.removePoller()
	}
}

// Stop ends the polling. With soon, the caller expects to poll again soon: unless another goroutine sleeps that waits for
// the link, its lanes stay attended for a while, so that the next frames wake no goroutine.
func (p *Polling) Stop(soon bool) {
	if p.paused {
		p.link.paused.Add(-1)
		return
	}
	if p.release(soon); soon && p.link.paused.Load() > 0 {
		p.link.Unattend() // The other goroutine could not do so: this one had the lanes.
	}
}

// Unattend ends the attendance after Stop: arriving frames are handled immediately again.
func (l *Link) Unattend() {
	a := l.attached.Load()
	if a == nil {
		return
	}
	for i := range a.laneReaders {
		if r := a.laneReaders[i].Load(); r != nil && r.tryAcquire() {
			r.unattend()
			r.release()
		}
	}
}

// ReadLazy handles the frames on the control lane that the peer has sent without waking a goroutine of this node
// ([Link.Beat]). It makes no system calls. Without shared memory it does nothing.
func (l *Link) ReadLazy() {
	a := l.attached.Load()
	if a == nil || l.MemorySharer() == nil {
		return
	}
	r := a.laneReaders[wire.Control].Load()
	if r == nil || !r.tryAcquire() {
		return // Another goroutine reads.
	}
	if r.failed != nil {
		r.release()
	} else if _, err := r.handle(false); err != nil {
		r.fail(err)
	} else {
		r.release()
	}
}

// keepAttended makes the idle timer end the attendance.
func (r *laneReader) keepAttended() {
	r.recent = true
	if !r.scheduled {
		r.scheduled = true
		r.link.common.idle.add(r)
	}
}

// expire is called by the idle timer every attendTime. It ends the attendance of a reader that
// was not polled since the last call, and reports whether it must be called again.
func (r *laneReader) expire() (again bool) {
	if !r.tryAcquire() {
		select {
		case <-r.of.done:
			return false
		default:
			return true
		}
	}
	defer r.release()
	if r.recent {
		r.recent = false
		return true
	}
	r.scheduled = false
	r.unattend()
	return false
}

// An IdleTimer ends the attendance of lanes that are no longer polled. The links of a node
// share one.
type IdleTimer struct {
	mu      sync.Mutex
	readers []*laneReader
	timer   *time.Timer // runs while there are readers
}

func (t *IdleTimer) add(r *laneReader) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers = append(t.readers, r)
	switch {
	case len(t.readers) > 1:
	case t.timer == nil:
		t.timer = time.AfterFunc(attendTime, t.check)
	default:
		t.timer.Reset(attendTime)
	}
}

// check is called by the timer while it has readers. It never waits for the owner of a reader,
// which may be in add.
func (t *IdleTimer) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers = slices.DeleteFunc(t.readers, func(r *laneReader) bool { return !r.expire() })
	if len(t.readers) > 0 {
		t.timer.Reset(attendTime)
	}
}
