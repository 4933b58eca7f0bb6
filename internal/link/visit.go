package link

import (
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// attendTime is after how long without a visit a desk is no longer attended.
// Until twice that time has passed, what comes for nobody who waits may lie
// there unseen.
const attendTime = time.Millisecond

// A Visit is the stay of somebody who waits for something that comes on a
// link. Where nobody else does, he handles himself what comes on lanes, in
// place of the link's own goroutines: that saves waking them, and him. He takes
// the bulk lane when this node has grants open there, and also writes what the
// peer has granted.
type Visit struct {
	link   *Link
	desks  [desksMax]*desk
	n      int
	bulk   int  // how many of them are of the bulk lane
	at     int  // the desk that Poll looked at last
	polls  int  // calls of Poll
	pushes bool // he is one of the pushers
}

// rarely is every how many-th Poll looks at a bulk lane on which nothing was
// granted. There may still be its end, or the rest of what was taken back.
const rarely = 16

// Visit begins a visit, of which v, which is zero, takes account. End must follow,
// by the same goroutine.
func (l *Link) Visit(v *Visit) {
	l.visitors.Add(1)
	v.link = l
	for i := range int(wire.Bulk) {
		v.seize(i)
	}
	if l.bulk.pushable.Load() {
		l.bulk.attend()
		v.pushes = true
	}
}

// seize takes the turn at a desk, if it is nobody else's.
func (v *Visit) seize(i int) {
	k := v.link.desks[i].Load()
	if k == nil || !k.take() {
		return
	}
	if k.failed != nil {
		k.turn.Store(false)
		return
	}
	if !k.attended {
		k.attended = true
		k.visits.Attend(true)
	}
	v.desks[v.n] = k
	v.n++
	if k.lane == wire.Bulk {
		v.bulk++
	}
}

// Busy reports whether Poll is of any use.
func (v *Visit) Busy() bool { return v.n > 0 || v.pushes }

// Cheap reports whether Poll takes no system call.
func (v *Visit) Cheap() bool {
	return v.link.memory()
}

// Poll handles what has come, and writes what can be written. It does not wait.
// It reports whether there was anything. After something on the control or the data
// lane it returns at once, as that may be what the caller waits for; the next call
// goes on with what follows.
func (v *Visit) Poll() (some bool) {
	granted := v.link.grants.some.Load() > 0
	if granted && v.bulk < int(v.link.bulkDesks.Load()) {
		v.seizeBulk()
	}
	v.polls++
	for range v.n + 1 { // the desks, and then what goes out
		v.at++
		if v.at >= v.n {
			v.at = -1
			some = v.pushes && v.link.bulk.laden.Load() && v.link.push() > 0 || some
			continue
		}
		k := v.desks[v.at]
		if k.lane == wire.Bulk && !granted && v.polls%rarely != 0 {
			continue
		}
		any, err := k.serve(false)
		if err != nil {
			v.quit(k, err)
		}
		if some = some || any; any && k.lane != wire.Bulk {
			return true
		}
	}
	return some
}

// quit leaves the desk at which the visitor is, because of an error.
func (v *Visit) quit(k *desk, err error) {
	v.n--
	v.desks[v.at] = v.desks[v.n]
	v.at--
	if k.lane == wire.Bulk {
		v.bulk--
	}
	k.hand(err)
}

// seizeBulk takes the turn at the pipes of the bulk lane.
func (v *Visit) seizeBulk() {
	for i := int(wire.Bulk); i < desksMax; i++ {
		if !slices.Contains(v.desks[:v.n], v.link.desks[i].Load()) {
			v.seize(i)
		}
	}
}

// Rest leaves the lanes to the link's own goroutines, because the visitor goes
// to sleep.
func (v *Visit) Rest() {
	for _, k := range v.desks[:v.n] {
		k.rest()
		k.turn.Store(false)
	}
	v.letGo()
}

// letGo ends what Visit has begun, but for the visitor being there.
func (v *Visit) letGo() {
	v.n, v.bulk = 0, 0
	if v.pushes {
		v.pushes = false
		v.link.bulk.leave()
	}
}

// End ends the visit. If there is likely to be another one soon, and none is
// waited for by anybody else, the lanes stay attended for a while: then nobody
// is woken by what comes for the next visitor.
func (v *Visit) End(soon bool) {
	if v.link.visitors.Add(-1) > 0 || !soon {
		v.Rest()
		return
	}
	for _, k := range v.desks[:v.n] {
		k.linger()
		k.turn.Store(false)
	}
	v.letGo()
	if v.link.visitors.Load() > 0 {
		v.link.Wake() // Somebody has come meanwhile, when no turn was to be had.
	}
}

// Wake ends what End has left: from now on what comes is handled at once,
// though nobody visits the link.
func (l *Link) Wake() {
	for i := range l.desks {
		if k := l.desks[i].Load(); k != nil && k.take() {
			k.rest()
			k.turn.Store(false)
		}
	}
}

func (k *desk) rest() {
	if k.attended {
		k.attended = false
		k.visits.Attend(false)
	}
}

func (k *desk) linger() {
	k.lately = true
	if !k.minded {
		k.minded = true
		k.link.minder.mind(k)
	}
}

// lapse is called by the minder, again and again. It reports whether the desk is
// to be minded still.
func (k *desk) lapse() bool {
	if !k.take() {
		select {
		case <-k.link.done:
			return false
		default:
			return true
		}
	}
	defer k.turn.Store(false)
	if k.lately {
		k.lately = false
		return true
	}
	k.minded = false
	k.rest()
	return false
}

// A Minder looks after lanes that are still attended when a visit has ended.
// The links of a node share one, so that a single timer does.
type Minder struct {
	mu      sync.Mutex
	desks   []*desk
	others  []*desk // memory for the next ones
	looking bool
	timer   *time.Timer
}

func (m *Minder) mind(k *desk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.desks = append(m.desks, k)
	switch {
	case m.looking || len(m.desks) > 1:
	case m.timer == nil:
		m.timer = time.AfterFunc(attendTime, m.look)
	default:
		m.timer.Reset(attendTime)
	}
}

// look is called by the timer as long as there are desks to be minded.
func (m *Minder) look() {
	m.mu.Lock()
	m.desks, m.others, m.looking = m.others, m.desks, true
	m.mu.Unlock()
	still := m.others[:0]
	for _, k := range m.others {
		if k.lapse() {
			still = append(still, k)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.desks = append(m.desks, still...)
	clear(m.others)
	m.others, m.looking = m.others[:0], false
	if len(m.desks) > 0 {
		m.timer.Reset(attendTime)
	}
}

// hand leaves a desk to the goroutine that reads the lane, which is to find an
// error.
func (k *desk) hand(err error) {
	k.failed = err
	k.pipe.SetReadDeadline(past)
	k.rest()
	k.turn.Store(false)
}
