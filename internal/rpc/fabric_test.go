package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

var (
	errTestLost   = errors.New("the process has died")
	errTestClosed = errors.New("the communicator is closed")
)

// A fabric carries messages between ranks in memory, in order for each pair.
type fabric struct {
	eager int                           // length of the longest message that Send buffers
	delay func() time.Duration          // of a message; nil: it arrives at once, on the sender's goroutine
	slow  func(bytes int) time.Duration // of a Take; nil: it is done before Take returns

	ports []*port
	wg    sync.WaitGroup
}

// A port is one rank's end of the fabric.
type port struct {
	fabric  *fabric
	rank    int
	arrived func()
	gone    chan struct{} // closed when the rank is gone

	polled sync.Mutex // one goroutine at a time polls

	mu      sync.Mutex
	queue   []*packet // arrived and not taken
	lastID  uint64
	to      []pair
	blocked chan struct{} // if not nil, sends wait until it is closed
	waits   chan struct{} // and report here
}

// A pair holds the messages in flight from one rank to another.
type pair struct {
	queue []*packet
	moves bool
}

// A packet is a message. Its parts belong to Send until it is taken.
type packet struct {
	from, to int
	id       uint64
	size     int
	due      time.Time // time of delivery

	mu    sync.Mutex
	parts [][]byte   // nil when Send has returned and they were not copied
	own   [1][]byte  // the copy
	sent  chan error // nil if Send does not wait
}

func newFabric(size int) *fabric {
	f := &fabric{eager: wire.PayloadMax}
	for i := range size {
		f.ports = append(f.ports, &port{fabric: f, rank: i, arrived: func() {}, gone: make(chan struct{}), to: make([]pair, size)})
	}
	return f
}

// Send implements Port.
func (p *port) Send(to int, parts ...[]byte) error {
	if err := p.pass(to); err != nil {
		return err
	}
	k := &packet{from: p.rank, to: to, parts: parts}
	for _, part := range parts {
		k.size += len(part)
	}
	if k.size <= p.fabric.eager {
		k.own[0] = slices.Concat(parts...)
		k.parts = k.own[:]
		p.post(k)
		return nil
	}
	k.sent = make(chan error, 1)
	p.post(k)
	select {
	case err := <-k.sent:
		return err
	case <-p.gone:
	case <-p.fabric.ports[to].gone:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parts = nil
	return errTestLost
}

// pass waits until sends are not blocked.
func (p *port) pass(to int) error {
	p.mu.Lock()
	blocked, waits := p.blocked, p.waits
	p.mu.Unlock()
	if blocked != nil {
		select {
		case waits <- struct{}{}:
		default:
		}
		select {
		case <-blocked:
		case <-p.gone:
		case <-p.fabric.ports[to].gone:
		}
	}
	if p.isGone() || p.fabric.ports[to].isGone() {
		return errTestLost
	}
	return nil
}

func (p *port) isGone() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// post puts a packet in flight, or delivers it if there is no delay.
func (p *port) post(k *packet) {
	if p.fabric.delay == nil {
		p.fabric.ports[k.to].receive(k)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	way := &p.to[k.to]
	k.due = time.Now().Add(p.fabric.delay())
	way.queue = append(way.queue, k)
	if !way.moves {
		way.moves = true
		p.fabric.wg.Go(func() { p.move(way) })
	}
}

// move delivers the messages of a pair in order.
func (p *port) move(way *pair) {
	for {
		p.mu.Lock()
		if len(way.queue) == 0 {
			way.moves = false
			p.mu.Unlock()
			return
		}
		k := way.queue[0]
		way.queue = way.queue[1:]
		p.mu.Unlock()
		time.Sleep(time.Until(k.due))
		p.fabric.ports[k.to].receive(k)
	}
}

func (p *port) receive(k *packet) {
	if p.isGone() {
		return
	}
	p.mu.Lock()
	p.lastID++
	k.id = p.lastID
	p.queue = append(p.queue, k)
	p.mu.Unlock()
	p.arrived()
}

// Poll implements Port.
func (p *port) Poll() (Message, bool) {
	defer p.alone()()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return Message{}, false
	}
	k := p.queue[0]
	return Message{Source: k.from, Bytes: k.size, ID: k.id}, true
}

// Take implements Port.
func (p *port) Take(m Message, buf []byte, done func(error)) {
	defer p.alone()()
	p.mu.Lock()
	k := p.queue[0]
	p.queue = slices.Delete(p.queue, 0, 1)
	p.mu.Unlock()
	if k.id != m.ID || buf != nil && len(buf) != k.size {
		panic(fmt.Sprintf("message %d of %d bytes is taken as %+v into %d bytes", k.id, k.size, m, len(buf)))
	}
	if buf == nil {
		k.settle(ErrRefused)
		done(nil)
		return
	}
	if p.fabric.slow == nil {
		done(k.copy(buf))
		return
	}
	p.fabric.wg.Go(func() {
		time.Sleep(p.fabric.slow(k.size))
		done(k.copy(buf))
	})
}

// alone panics if another goroutine polls or takes.
func (p *port) alone() (done func()) {
	if !p.polled.TryLock() {
		panic("two goroutines poll at a time")
	}
	return p.polled.Unlock
}

// copy copies the payload, and ends the Send.
func (k *packet) copy(buf []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.parts == nil {
		return errTestLost
	}
	for _, part := range k.parts {
		buf = buf[copy(buf, part):]
	}
	k.settle(nil)
	return nil
}

// settle ends a waiting Send.
func (k *packet) settle(err error) {
	if k.sent != nil {
		k.sent <- err
	}
}

// block makes the sends of a rank wait until pass is called. The channel reports each
// wait.
func (p *port) block() (waits <-chan struct{}, pass func()) {
	blocked := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked, p.waits = blocked, make(chan struct{}, 1)
	return p.waits, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.blocked = nil
		close(blocked)
	}
}

// A world is a set of ranks with their services.
type world struct {
	*fabric
	services []*Service
}

// newWorld creates the services of size ranks on a fabric. At the end of the test they
// are closed, and must have ended.
func newWorld(t testing.TB, size int, cfg Config, conditions ...func(*fabric)) *world {
	t.Helper()
	w := &world{fabric: newFabric(size)}
	for _, set := range conditions {
		set(w.fabric)
	}
	if cfg.Broken == nil {
		cfg.Broken = func(source int, err error) { t.Errorf("rank %d has broken the protocol: %v", source, err) }
	}
	for rank, p := range w.ports {
		s := New(p, rank, size, cfg)
		p.arrived = s.Arrived
		w.services = append(w.services, s)
	}
	t.Cleanup(func() {
		for rank := range w.services {
			w.close(rank)
		}
		for rank, s := range w.services {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if err := s.Wait(ctx); err != nil {
				t.Errorf("rank %d has not ended: %v", rank, err)
			}
			cancel()
		}
		w.wg.Wait()
	})
	return w
}

// close closes the service of a rank and its end of the fabric.
func (w *world) close(rank int) {
	w.services[rank].Close(errTestClosed)
	p := w.ports[rank]
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isGone() {
		close(p.gone)
	}
}

// lose ends a rank, which all others notice.
func (w *world) lose(rank int) {
	w.close(rank)
	for other, s := range w.services {
		if other != rank {
			s.Lost(rank, errTestLost)
		}
	}
}

// register registers a function on all ranks.
func (w *world) register(t testing.TB, fn string, h Handler) {
	t.Helper()
	for _, s := range w.services {
		if err := s.Register(fn, h); err != nil {
			t.Fatal(err)
		}
	}
}

// A rawPeer is a rank without a service, which sends any messages.
type rawPeer struct {
	t testing.TB
	*port
	came chan struct{}
}

// newRawPeer creates a service for rank 0, and a rawPeer as rank 1.
func newRawPeer(t testing.TB, cfg Config) (*Service, *rawPeer) {
	t.Helper()
	w := newWorld(t, 2, cfg)
	x := &rawPeer{t: t, port: w.ports[1], came: make(chan struct{}, 1)}
	x.arrived = x.ring
	return w.services[0], x
}

// ring reports that a message may have arrived.
func (x *rawPeer) ring() {
	select {
	case x.came <- struct{}{}:
	default:
	}
}

// until waits for a condition of the peers of a service, which it evaluates with their
// locks held.
func until(s *Service, is func() bool) {
	for {
		for i := range s.peers {
			s.peer(i).mu.Lock()
		}
		ok := is()
		for i := range s.peers {
			s.peer(i).mu.Unlock()
		}
		if ok {
			return
		}
		runtime.Gosched()
	}
}

// say sends a message to rank 0.
func (x *rawPeer) say(parts ...[]byte) {
	x.t.Helper()
	if err := x.Send(0, parts...); err != nil {
		x.t.Errorf("Send: %v", err)
	}
}

// call sends a call to rank 0, without a deadline.
func (x *rawPeer) call(id uint64, fn string, args []byte) {
	x.t.Helper()
	x.callWithin(id, 0, fn, args)
}

func (x *rawPeer) callWithin(id uint64, limit time.Duration, fn string, args []byte) {
	x.t.Helper()
	c := wire.RemoteCall{ID: id, Remaining: uint64(limit)}
	x.say(c.Append(nil, fn), args)
}

// cancel cancels a call.
func (x *rawPeer) cancel(id uint64) {
	x.t.Helper()
	c := wire.RemoteCancel{ID: id}
	x.say(c.Append(nil))
}

// reply answers a call of rank 0.
func (x *rawPeer) reply(id uint64, result string) {
	x.t.Helper()
	a := wire.RemoteAnswer{ID: id, Status: wire.RemoteDone}
	x.say(a.Append(nil), []byte(result))
}

// next returns the next message for the rawPeer.
func (x *rawPeer) next() []byte {
	for {
		if m, ok := x.Poll(); ok {
			b, done := make([]byte, m.Bytes), make(chan error, 1)
			x.Take(m, b, func(err error) { done <- err })
			if err := <-done; err != nil {
				x.t.Error(err)
			}
			return b
		}
		<-x.came
	}
}

// answer returns the next message, which must be an answer.
func (x *rawPeer) answer() (wire.RemoteAnswer, []byte) {
	x.t.Helper()
	b := x.next()
	a, rest, err := wire.ParseRemoteAnswer(b)
	if err != nil {
		x.t.Fatalf("%x is not an answer: %v", b, err)
	}
	return a, rest
}

// asked returns the next message, which must be a call.
func (x *rawPeer) asked() (c wire.RemoteCall, fn string, args []byte) {
	x.t.Helper()
	b := x.next()
	c, name, args, err := wire.ParseRemoteCall(b)
	if err != nil {
		x.t.Fatalf("%x is not a call: %v", b, err)
	}
	return c, string(name), args
}
