package lane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// A world is a model of two nodes, their links and the connections between them. The caller of the package is played by the
// functions of this file and by random choices, faults included. Everything that a world checks is an error of the package.
type world struct {
	rnd    *rand.Rand // nil in an exhaustive search
	limits limits
	procs  [2]*proc
	conns  []*pair
	count  uint64 // of processes
	truth  map[ID]*truth
	old    []held // the bytes of writers of earlier connections
	err    error
	trace  []string // of the steps, if not nil
	room   []step
}

// limits bound a history.
type limits struct {
	frames, grants, dials, cuts, restarts, byes, links, faults int
}

// truth has the facts about a link of one side, for the checks.
type truth struct {
	ended   bool
	handler ID               // the only link that handles its frames
	sent    [2]int           // numbered frames of each lane
	handled [2]int           // of those
	sinks   map[uint64]*sink // grants
	byes    int              // goodbyes handled by the peer
}

// A sink is the memory of a grant.
type sink struct {
	Grant
	writes            []int // number of writes of each byte
	filled, withdrawn bool
	recalled          bool // the transfer for it
}

// A proc is a process.
type proc struct {
	side        int
	incarnation uint64
	links       uint64
	link        *link // nil without one
	tombs       [2][]Tombstone
}

// A link is one side of a link, with a control lane, 0, and a data lane, 1.
type link struct {
	of        *proc
	names     Names
	truth     *truth
	lanes     [2]*half
	grants    Grants
	open      []*sink
	transfers Transfers
	active    []*Transfer
	announced []announcement // without a transfer yet
	bye       bool           // our goodbye is appended to both lanes
	byes      int            // goodbyes of the peer
}

type announcement struct {
	grant uint64
	size  int
}

// A half is one side of a lane.
type half struct {
	session *Session
	out     Out
	in      In
	at      *end // the opened connection; nil without one
	halting bool // readers stop
	dialed  bool // since everything was calm
}

// A pair is a connection of a lane.
type pair struct {
	lane int
	ends [2]*end
	cut  bool
}

// An end is one end of a connection.
type end struct {
	conn    Conn
	of      *proc
	pair    *pair
	side    int
	dead    bool // closed by this side, or its process has ended
	reading bool // readers run; also of a dead end, until they stop
	in      [3][]byte
	segment [3]segment // that are being read
	write   held       // by the writer
	holds   bool
	bulk    [3]*Transfer // whose segment is being written, by pipe
	wrote   [3]int
}

type segment struct {
	left  int
	grant uint64
	sink  *sink // nil if the payload is discarded
	isSet bool
}

// held has the bytes of a writer, with a copy.
type held struct{ transient, numbered, copied []byte }

func (h *held) check() bool {
	n := len(h.transient)
	return bytes.Equal(h.transient, h.copied[:n]) && bytes.Equal(h.numbered, h.copied[n:])
}

// The frames of the model.
const (
	frameNote     = iota + 10 // numbered: a note of the program
	frameAnnounce             // numbered: a grant
	frameBye                  // numbered
	frameAck                  // transient
	frameFinished             // transient
	frameBeat                 // transient
	frameSegment              // bulk
	frameOpening  = 1
)

const numberedHead = 1 + 8 + 8 + 2 // type, link, sequence number

func newWorld(rnd *rand.Rand, l limits) *world {
	w := &world{rnd: rnd, limits: l, truth: make(map[ID]*truth)}
	for side := range w.procs {
		w.start(side)
		w.newLink(side)
	}
	return w
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// start starts a process.
func (w *world) start(side int) {
	w.count++
	w.procs[side] = &proc{side: side, incarnation: w.count}
}

// newLink begins a link of a process.
func (w *world) newLink(side int) {
	p := w.procs[side]
	p.links++
	l := &link{of: p, names: Names{Self: ID{p.incarnation, p.links}}}
	l.truth = &truth{sinks: make(map[uint64]*sink)}
	w.truth[l.names.Self] = l.truth
	for i := range l.lanes {
		l.lanes[i] = &half{session: NewSession(&l.names, side == 1)}
	}
	p.link = l
}

// restart ends the process of a side and starts another one.
func (w *world) restart(side int) {
	p := w.procs[side]
	w.closeAll(p)
	if p.link != nil {
		p.link.truth.ended = true
	}
	w.start(side)
	w.newLink(side)
}

// close closes an end. The bytes on their way to the other end may still arrive, and readers go on until they stop.
func (w *world) close(e *end) {
	if e.holds {
		w.release(e, w.upTo(len(e.write.copied)), false)
	}
	if e.dead, e.pair.cut = true, true; !e.reading {
		e.in = [3][]byte{}
	}
	if l := e.of.link; l != nil {
		if h := l.lanes[e.pair.lane]; h.at == e {
			h.at = nil
		}
	}
}

// closeAll closes all ends of a process, and stops its readers.
func (w *world) closeAll(p *proc) {
	for _, c := range w.conns {
		e := c.ends[p.side]
		if e.of != p {
			continue
		}
		if !e.dead {
			w.close(e)
		}
		e.reading, e.in = false, [3][]byte{}
	}
}

// upTo returns a random number from 0 to n.
func (w *world) upTo(n int) int {
	if w.rnd == nil {
		return n
	}
	return w.rnd.IntN(n + 1)
}

// put writes bytes on a pipe.
func (w *world) put(e *end, pipe int, b []byte) {
	if other := e.pair.ends[1-e.side]; !e.pair.cut && !other.dead {
		other.in[pipe] = append(other.in[pipe], b...)
	}
}

// release ends the write of an end after n bytes.
func (w *world) release(e *end, n int, current bool) {
	if !e.write.check() {
		w.failf("the bytes of a writer have changed")
	}
	w.put(e, 0, e.write.copied[:n])
	e.holds = false
	if current {
		w.must(e.of.link.lanes[e.pair.lane].out.Wrote(n))
	} else {
		w.old = append(w.old, e.write)
	}
	e.write = held{}
}

func (w *world) must(err error) {
	if err != nil {
		w.failf("%w", err)
	}
}

// endLink ends the link of a process. dead says that the peer must have ended.
func (w *world) endLink(l *link, reason error) {
	if peer := w.truth[l.names.Peer]; reason != nil && (peer == nil || !peer.ended) {
		w.failf("%v ends although its peer %v has not: %w", l.names.Self, l.names.Peer, reason)
	}
	if l.of.link != l {
		return
	}
	l.truth.ended = true
	w.closeAll(l.of)
	l.of.link = nil
	if l.names.Peer.IsZero() {
		return
	}
	for i, h := range l.lanes {
		l.of.tombs[i] = append(l.of.tombs[i], Tombstone{l.names, h.in.Received()})
	}
}

// dial makes a connection and proposes it.
func (w *world) dial(side, lane int) {
	c := &pair{lane: lane}
	for i := range c.ends {
		c.ends[i] = &end{of: w.procs[i], pair: c, side: i}
	}
	c.ends[side].conn.Dialed = true
	w.conns = append(w.conns, c)
	l := w.procs[side].link
	w.apply(l, lane, l.lanes[lane].session.Propose(&c.ends[side].conn))
}

func (w *world) endOf(l *link, lane int, c *Conn) *end {
	for _, p := range w.conns {
		if e := p.ends[l.of.side]; &e.conn == c && p.lane == lane {
			return e
		}
	}
	panic("a connection of another lane")
}

// apply carries out an action.
func (w *world) apply(l *link, lane int, a Action) {
	h := l.lanes[lane]
	if a.Close != nil {
		if e := w.endOf(l, lane, a.Close); !e.dead {
			w.close(e)
		}
	}
	if a.End != nil {
		w.must(h.out.Ack(a.Theirs.Received)) // The position is 0 if the peer does not know it.
		if l.bye && w.isSent(l) {
			w.endLink(l, nil)
		} else {
			w.endLink(l, a.End)
		}
		return
	}
	if a.Stop {
		h.halting = true
	}
	if a.Send != nil {
		o := a.Opening
		if o.Kind == Open {
			o.Received = h.in.State()
			if lane == 1 {
				l.grants.State(&o)
			}
		}
		w.put(w.endOf(l, lane, a.Send), 0, appendOpening(nil, &o))
	}
	if a.Opened != nil {
		h.at = w.endOf(l, lane, a.Opened)
		if h.halting || w.isRead(l, lane) {
			w.failf("a connection opens while readers of another one run")
		}
		h.at.reading = true
		w.must(h.out.Resume(a.Theirs.Received))
		if lane == 1 {
			delivered, err := l.transfers.Resume(&a.Theirs)
			w.must(err)
			for _, t := range delivered {
				w.delivered(l, t)
			}
		}
	}
}

// isRead reports whether a reader of the lane runs.
func (w *world) isRead(l *link, lane int) bool {
	for _, p := range w.conns {
		if e := p.ends[l.of.side]; p.lane == lane && e.of == l.of && e.reading {
			return true
		}
	}
	return false
}

// delivered checks that the peer has all of a transfer or does not want it.
func (w *world) delivered(l *link, t *Transfer) {
	for i, other := range l.active {
		if other == t {
			l.active = append(l.active[:i], l.active[i+1:]...)
			break
		}
	}
	peer := w.truth[l.names.Peer]
	if peer.ended {
		return
	}
	if s := peer.sinks[t.Grant()]; !s.filled && !s.withdrawn {
		w.failf("grant %d of %v is delivered after %d of %d bytes", t.Grant(), l.names.Peer, s.Got(), len(s.writes))
	}
}

// isSent reports whether the peer has acknowledged everything.
func (w *world) isSent(l *link) bool { return l.lanes[0].out.Kept() == 0 && l.lanes[1].out.Kept() == 0 }

// numbered appends a numbered frame.
func (w *world) numbered(l *link, lane int, kind byte, body []byte) {
	h := l.lanes[lane]
	size := numberedHead + len(body) + 2
	b := h.out.Buffer(size)
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint64(b, l.names.Self.Incarnation)
	b = binary.LittleEndian.AppendUint64(b, l.names.Self.Link)
	b = binary.LittleEndian.AppendUint16(b, uint16(l.truth.sent[lane]))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
	h.out.Commit(append(b, body...))
	l.truth.sent[lane]++
}

// grant opens a grant of size bytes and announces it on a lane.
func (w *world) grant(l *link, lane, size int) {
	s := &sink{writes: make([]int, size)}
	l.grants.Add(&s.Grant, size)
	s.Of = s
	l.open = append(l.open, s)
	l.truth.sinks[s.ID()] = s
	w.numbered(l, lane, frameAnnounce, []byte{byte(s.ID()), byte(size)})
}

// withdraw withdraws an open grant.
func (w *world) withdraw(l *link, s *sink) {
	s.withdrawn = true
	if !l.grants.Withdraw(&s.Grant) {
		w.failf("an open grant was not open")
	}
	l.dropSink(s)
}

func (l *link) dropSink(s *sink) {
	for i, other := range l.open {
		if other == s {
			l.open = append(l.open[:i], l.open[i+1:]...)
			return
		}
	}
}

// transient sends a transient frame on a lane that works.
func (l *link) transient(lane int, b []byte) {
	if h := l.lanes[lane]; h.at != nil && !h.halting {
		h.out.Transient(b)
	}
}

// finished reports that a grant is finished, on the lane with the list of grants in its opening.
func (w *world) finished(l *link, grant uint64) {
	l.transient(1, binary.LittleEndian.AppendUint64([]byte{frameFinished}, grant))
}

// ack acknowledges a lane.
func (l *link) ack(lane int) {
	l.transient(lane, binary.LittleEndian.AppendUint64([]byte{frameAck}, l.lanes[lane].in.State()))
}

func appendOpening(b []byte, o *Opening) []byte {
	b = append(b, frameOpening, byte(o.Kind), 0)
	if o.Bound {
		b[len(b)-1] = 1
	}
	for _, v := range []uint64{o.From.Incarnation, o.From.Link, o.To.Incarnation, o.To.Link, o.Generation, o.Received, o.Last, uint64(len(o.Grants))} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, p := range o.Grants {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, p.Grant), p.Got)
	}
	return b
}

// parseOpening returns the length of the opening, or 0 if it is incomplete.
func parseOpening(b []byte) (o Opening, n int) {
	if n = 3 + 8*8; len(b) < n {
		return o, 0
	}
	var v [8]uint64
	for i := range v {
		v[i] = binary.LittleEndian.Uint64(b[3+8*i:])
	}
	o = Opening{Kind: Kind(b[1]), Bound: b[2] == 1, From: ID{v[0], v[1]}, To: ID{v[2], v[3]}, Generation: v[4], Received: v[5], Last: v[6]}
	for range v[7] {
		if len(b) < n+16 {
			return o, 0
		}
		o.Grants = append(o.Grants, Progress{binary.LittleEndian.Uint64(b[n:]), binary.LittleEndian.Uint64(b[n+8:])})
		n += 16
	}
	return o, n
}
