package lane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/nexar-go/nexar/internal/wire"
)

// A world is a model of two nodes, their links and the connections between them. The caller of the package is played by the
// functions of this file and by random choices, faults included. Everything that a world checks is an error of the package.
type world struct {
	rnd    *rand.Rand // nil in an exhaustive search
	limits limits
	procs  [2]*proc
	conns  []*pair
	truth  map[wire.LinkID]*truth
	old    []held // the bytes of writers of earlier connections
	err    error
	trace  []string // of the steps, if not nil
	room   []step
}

// limits bound a history.
type limits struct {
	frames, grants, dials, cuts, byes, links, faults int
}

// truth has the facts about a link of one side, for the checks.
type truth struct {
	ended   bool
	handler wire.LinkID      // the only link that handles its frames
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
	side    int
	process uint64
	numbers uint64 // of statements and links
	link    *link  // nil without one
}

func (p *proc) next() uint64 {
	p.numbers++
	return p.numbers
}

// A link is one side of a link, with a control lane, 0, and a data lane, 1.
type link struct {
	of        *proc
	session   Session
	at        *end // the connection in use; nil without one
	halting   bool // it has ended, and its readers stop
	dialed    bool // since everything was calm
	truth     *truth
	lanes     [2]half
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
	out Out
	in  In
}

// A pair is a connection.
type pair struct {
	ends [2]*end
	cut  bool
}

// A phase is the state of an end on its way to be used.
type phase uint8

const (
	fresh    phase = iota
	begun          // of the side that has dialed: the proposal has begun
	stated         // of that side: it has stated what it has received
	arrived        // of the other side: the proposal was read
	accepted       // of that side: it has stated what it has received
	bound
)

// The pipes of a connection: one for each lane, and those of the bulk lane.
const (
	bulkPipe = 2
	pipes    = 4
)

// An end is one end of a connection.
type end struct {
	of      *proc
	pair    *pair
	side    int
	phase   phase
	claim   Claim
	theirs  wire.Resume // of a proposal that has arrived, or of one that was accepted
	dead    bool        // closed by this side
	reading bool        // readers run; also of a dead end, until they stop
	in      [pipes][]byte
	segment [pipes]segment // that are being read
	write   [2]held        // by the writers of the lanes
	holds   [2]bool
	bulk    [pipes]*Transfer // whose segment is being written
	wrote   [pipes]int
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
	w := &world{rnd: rnd, limits: l, truth: make(map[wire.LinkID]*truth)}
	for side := range w.procs {
		w.procs[side] = &proc{side: side, process: uint64(side + 1)}
		w.newLink(side)
	}
	return w
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// newLink begins a link of a process.
func (w *world) newLink(side int) {
	p := w.procs[side]
	l := &link{of: p, truth: &truth{sinks: make(map[uint64]*sink)}}
	l.session.Self = wire.LinkID{Process: p.process, Link: p.next()}
	w.truth[l.session.Self] = l.truth
	p.link = l
}

// close closes an end. The bytes on their way to the other end may still arrive, and readers go on until they stop.
func (w *world) close(e *end) {
	for lane, holds := range e.holds {
		if holds {
			w.release(e, lane, w.upTo(len(e.write[lane].copied)), false)
		}
	}
	if e.dead, e.pair.cut = true, true; !e.reading {
		e.in = [pipes][]byte{}
	}
}

// lose ends an end for its side.
func (w *world) lose(e *end) {
	w.close(e)
	l := e.of.link
	switch {
	case l == nil:
	case l.at == e:
		l.halting = true
	case e.phase == begun || e.phase == stated:
		l.session.GiveUp(false)
	case e.phase == accepted:
		l.session.GiveUp(true)
	}
	e.phase = bound
}

// closeAll closes all ends of a process, and stops its readers.
func (w *world) closeAll(p *proc) {
	for _, c := range w.conns {
		e := c.ends[p.side]
		if !e.dead {
			w.close(e)
		}
		e.reading, e.in = false, [pipes][]byte{}
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

// release ends the write of a lane after n bytes.
func (w *world) release(e *end, lane, n int, current bool) {
	h := e.write[lane]
	if !h.check() {
		w.failf("the bytes of a writer have changed")
	}
	w.put(e, lane, h.copied[:n])
	if current {
		w.must(e.of.link.lanes[lane].out.Wrote(n))
	} else {
		w.old = append(w.old, h)
	}
	e.write[lane], e.holds[lane] = held{}, false
}

func (w *world) must(err error) {
	if err != nil {
		w.failf("%w", err)
	}
}

// endLink ends the link of a process. If there is a reason, the peer must have ended its link.
func (w *world) endLink(l *link, reason error) {
	if peer := w.truth[l.session.Peer]; reason != nil && (peer == nil || !peer.ended) {
		w.failf("%v ends although its peer %v has not: %w", l.session.Self, l.session.Peer, reason)
	}
	if l.of.link != l {
		return
	}
	l.truth.ended = true
	w.closeAll(l.of)
	l.of.link = nil
}

// dial makes a connection and begins to propose it. It reports false if the session does not want one.
func (w *world) dial(side int) bool {
	p := w.procs[side]
	claim, err := p.link.session.Begin(false, p.next())
	if err != nil {
		return false
	}
	c := new(pair)
	for i := range c.ends {
		c.ends[i] = &end{of: w.procs[i], pair: c, side: i}
	}
	c.ends[side].claim, c.ends[side].phase = claim, begun
	w.conns = append(w.conns, c)
	return true
}

// state states what this side has received.
func (w *world) state(l *link, e *end) {
	r := l.session.State(e.claim)
	for lane := range l.lanes {
		r.Received[lane] = l.lanes[lane].in.Received()
	}
	l.grants.State(&r)
	w.put(e, 0, appendOpening(nil, &r))
}

// admit handles a proposal that has arrived. The mesh lets it wait while the side with the larger NodeID proposes a connection itself.
func (w *world) admit(e *end) {
	l := e.of.link
	switch {
	case l == nil && e.theirs.To.Process == e.of.process: // The link has ended.
		w.put(e, 0, appendOpening(nil, &wire.Resume{To: e.theirs.From}))
		w.lose(e)
		return
	case l == nil && w.limits.links > 0:
		w.limits.links--
		w.newLink(e.side)
		l = e.of.link
	case l == nil:
		w.lose(e)
		return
	}
	switch {
	case l.at != nil && !l.session.IsLost(&e.theirs):
		w.lose(e)
		return
	case l.at != nil:
		if peer := e.pair.ends[1-e.side].of.link; peer != nil && peer.at != nil && peer.at.pair == l.at.pair && !l.at.pair.cut {
			w.failf("%v replaces a connection that its peer uses", l.session.Self)
		}
		w.lose(l.at)
		return
	}
	claim, err := l.session.Begin(true, e.of.next())
	if err != nil {
		w.lose(e)
		return
	}
	e.claim, e.phase = claim, accepted
	hasEnded, err := l.session.Check(&e.theirs)
	switch {
	case err == nil:
		w.state(l, e)
	case hasEnded:
		w.hasEnded(l, err)
	default:
		w.lose(e)
	}
}

// canAdmit reports whether admit need not wait.
func (e *end) canAdmit() bool {
	l := e.of.link
	return l == nil || !l.halting && !(l.session.proposing && e.side == 1 && l.at == nil)
}

// hasEnded handles that the link of the peer has ended.
func (w *world) hasEnded(l *link, reason error) {
	if l.bye {
		reason = nil
	}
	w.endLink(l, reason)
}

// bind lets the link use a connection.
func (w *world) bind(l *link, e *end) bool {
	if l.session.Bind(e.claim) != nil {
		w.lose(e)
		return false
	}
	for lane := range l.lanes {
		w.must(l.lanes[lane].out.Resume(e.theirs.Received[lane]))
	}
	delivered, err := l.transfers.Resume(&e.theirs)
	w.must(err)
	l.session.Use(&e.theirs)
	if l.session.GiveUp(e.phase == accepted); l.at != nil || w.isRead(l) {
		w.failf("a connection is used while readers of another one run")
	}
	e.phase, e.reading, l.at = bound, true, e
	for _, t := range delivered {
		w.delivered(l, t)
	}
	return true
}

// isRead reports whether a reader of the link runs.
func (w *world) isRead(l *link) bool {
	for _, p := range w.conns {
		if p.ends[l.of.side].reading {
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
	peer := w.truth[l.session.Peer]
	if peer.ended {
		return
	}
	if s := peer.sinks[t.grant]; !s.filled && !s.withdrawn {
		w.failf("grant %d of %v is delivered after %d of %d bytes", t.grant, l.session.Peer, s.Got(), len(s.writes))
	}
}

// isSent reports whether the peer has acknowledged everything.
func (w *world) isSent(l *link) bool { return l.lanes[0].out.Kept() == 0 && l.lanes[1].out.Kept() == 0 }

// numbered appends a numbered frame.
func (w *world) numbered(l *link, lane int, kind byte, body []byte) {
	h := &l.lanes[lane]
	size := numberedHead + len(body) + 2
	b := h.out.Buffer(size)
	b = append(b, kind)
	b = binary.LittleEndian.AppendUint64(b, l.session.Self.Process)
	b = binary.LittleEndian.AppendUint64(b, l.session.Self.Link)
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

// works reports whether the link has a connection that has not ended.
func (l *link) works() bool { return l.at != nil && !l.halting }

// transient sends a transient frame on a lane that works.
func (l *link) transient(lane int, b []byte) {
	if l.works() {
		l.lanes[lane].out.Transient(b)
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

func appendOpening(b []byte, r *wire.Resume) []byte { return r.Append(append(b, frameOpening)) }

// parseOpening returns the length of the opening, or 0 if it is incomplete.
func parseOpening(b []byte) (r wire.Resume, n int) {
	if len(b) < 1+wire.ResumeSize {
		return r, 0
	}
	n, err := wire.ResumeLength(b[1 : 1+wire.ResumeSize])
	if err != nil || len(b) < 1+n {
		return r, 0
	}
	if r, err = wire.ParseResume(b[1 : 1+n]); err != nil {
		return r, 0
	}
	return r, 1 + n
}
