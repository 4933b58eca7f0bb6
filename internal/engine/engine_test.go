package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/sim"
)

// commID is the communicator of the tests.
const commID = 3

// A world has engines that are linked to each other, and a communicator of all of them.
type world struct {
	engines []*Engine
	links   [][]*link.Link // of each engine, by peer
	loops   []*link.Link
	comms   []*Comm
	pool    *bufpool.Pool
	lost    chan error // gets why links end, if not nil
}

// Lost, Left and Failed make an Engine a [link.Handler] for the tests, which have no mesh:
// every end of a link is an end of the peer, and reports of other nodes are ignored.
func (e *Engine) Lost(l *link.Link, err error) {
	e.PeerChanged(PeerChange{Peer: l.Peer, Link: l, Err: err, LinkEnded: true})
}

func (e *Engine) Left(l *link.Link) {
	e.PeerChanged(PeerChange{Peer: l.Peer, Link: l, LinkEnded: true})
}

func (e *Engine) Failed(*link.Link, wire.Failed, string) {}
func (e *Engine) Reason(*link.Link, wire.Reason, string) {}

func (e *Engine) Gone(*link.Link, wire.Gone) {}

func (e *Engine) Leaving(*link.Link, wire.Leaving) {}

func (e *Engine) View(*link.Link, []byte) {}

// A lossRecorder is an Engine that also sends the errors of its links to lost.
type lossRecorder struct {
	*Engine
	lost chan<- error
}

func (n lossRecorder) Lost(l *link.Link, err error) {
	n.lost <- err
	n.Engine.Lost(l, err)
}

// listeners returns n transports that reach each other.
type listeners func(t testing.TB, n int) []transport.Transport

func overMem(t testing.TB, n int) []transport.Transport {
	network := mem.NewNetwork()
	var all []transport.Transport
	for i := range n {
		l, err := network.Listen(fmt.Sprint("rank ", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// overSim returns the transports of a simulated network, for synctest bubbles.
func overSim(cfg sim.Config) listeners {
	return func(t testing.TB, n int) []transport.Transport { return hosts(t, sim.New(cfg), n) }
}

// hosts returns the transports of the hosts "rank0" and so on.
func hosts(t testing.TB, network *sim.Network, n int) []transport.Transport {
	t.Cleanup(func() { network.Close() })
	var all []transport.Transport
	for i := range n {
		l, err := network.Host(fmt.Sprint("rank", i)).Listen(1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// newWorld links n engines and makes the communicators of all ranks except those in later.
func newWorld(t testing.TB, n int, over listeners, cfg Config, later ...int) *world {
	t.Helper()
	pool, err := bufpool.New(bufpool.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{pool: pool}
	ends := over(t, n)
	for range n {
		w.engines = append(w.engines, New(cfg))
		w.links = append(w.links, make([]*link.Link, n))
	}
	w.comms, w.loops = make([]*Comm, n), make([]*link.Link, n)
	for i := range n {
		for j := range i {
			a, b := connect(t, ends[i], ends[j])
			w.links[i][j], w.links[j][i] = linkPair(t, w.handler(i), w.handler(j), i, j, a, b)
		}
		self := overMem(t, 2)
		a, b := connect(t, self[0], self[1])
		w.links[i][i], w.loops[i] = linkPair(t, w.handler(i), w.handler(i), i, i, a, b)
	}
	t.Cleanup(w.close)
	for i := range n {
		if !contains(later, i) {
			w.open(i)
		}
	}
	return w
}

func contains(list []int, v int) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

func (w *world) open(rank int) { w.comms[rank] = w.engines[rank].NewComm(commID, rank, w.links[rank]) }

// handler returns the handler of the links of a rank.
func (w *world) handler(rank int) link.Handler {
	if w.lost != nil {
		return lossRecorder{w.engines[rank], w.lost}
	}
	return w.engines[rank]
}

// linkPair returns the links of two ranks to each other, with the handlers hx and hy, over a connection with the ends a and b.
func linkPair(t testing.TB, hx, hy link.Handler, rankX, rankY int, a, b transport.Conn) (x, y *link.Link) {
	t.Helper()
	x, y = link.NewCommon(hx, link.Config{}, nil).NewPending(rankY), link.NewCommon(hy, link.Config{}, nil).NewPending(rankX)
	accepted := make(chan error, 1)
	go func() { accepted <- y.Accept(t.Context(), b, link.Config{}, func() error { return nil }) }()
	if err := x.Connect(t.Context(), a, link.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	return x, y
}

func connect(t testing.TB, a, b transport.Transport) (x, y transport.Conn) {
	t.Helper()
	x, err := a.Dial(t.Context(), b.Addr(), b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if y, err = b.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x, y
}

// leave closes the node of a rank in good order.
func (w *world) leave(rank int) {
	w.engines[rank].Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var closing sync.WaitGroup
	for _, l := range append([]*link.Link{w.loops[rank]}, w.links[rank]...) {
		closing.Go(func() { l.Close(ctx) })
	}
	closing.Wait()
	w.engines[rank] = nil
}

func (w *world) close() {
	for rank, e := range w.engines {
		if e != nil {
			e.Close()
		}
		for _, l := range append([]*link.Link{w.loops[rank]}, w.links[rank]...) {
			l.Abort()
		}
	}
}

// on runs f for every rank and returns the errors.
func (w *world) on(f func(rank int, c *Comm) error) []error {
	errs := make([]error, len(w.comms))
	var running sync.WaitGroup
	for rank, c := range w.comms {
		running.Go(func() { errs[rank] = f(rank, c) })
	}
	running.Wait()
	return errs
}

// noError fails the test for each error.
func noError(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A choice is an algorithm with its parameters.
type choice struct {
	kind      plan.Collective
	algorithm string
	channels  int
	root      int
}

var ring = choice{plan.AllReduce, "ring", 1, 0}

// work returns a collective on elements of int32, in place.
func (w *world) work(rank int, ch choice, data []byte) exec.Work {
	for i, a := range plan.Algorithms(ch.kind) {
		if a.Name != ch.algorithm {
			continue
		}
		size := len(w.links)
		return exec.Work{
			Schedule: &exec.Schedule{
				Call: wire.Call{
					Kind: uint8(ch.kind), Type: uint8(kernel.Int32), Op: uint8(kernel.Sum), Count: uint64(len(data) / 4),
					Root: uint32(ch.root), Plan: uint8(i), Channels: uint16(ch.channels),
				},
				Plan: linkexec.Compile(a.Plan(rank, size, ch.root), size), Channels: ch.channels,
				Layout: exec.Layout{Elem: 4, Count: len(data) / 4}, Pool: w.pool,
			},
			Data: data, Reduce: kernel.Reducer(kernel.Int32, kernel.Sum),
		}
	}
	panic("there is no " + ch.algorithm)
}

// run carries a collective out on a rank.
func (w *world) run(ctx context.Context, rank int, ch choice, data []byte) error {
	op, err := w.comms[rank].start(w.work(rank, ch, data))
	if err != nil {
		return err
	}
	return op.Wait(ctx)
}

// vector returns the operand of a rank: element i is i·17 + rank.
func vector(rank, count int) []byte {
	b := make([]byte, 4*count)
	for i := range count {
		binary.NativeEndian.PutUint32(b[4*i:], uint32(i*17+rank))
	}
	return b
}

// checkSum checks that data is the sum of the vectors of size ranks.
func checkSum(data []byte, size int) error {
	for i := range len(data) / 4 {
		got, want := binary.NativeEndian.Uint32(data[4*i:]), uint32(size*i*17+size*(size-1)/2)
		if got != want {
			return fmt.Errorf("element %d is %d, want %d", i, got, want)
		}
	}
	return nil
}

func soon(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", what)
	}
}

// until waits until f reports true.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// isType reports whether an error is, or wraps, one of a type.
func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestAllReduce(t *testing.T) {
	for _, algorithm := range []string{"recursive-doubling", "flat", "rabenseifner", "ring", "circulant"} {
		for _, n := range []int{1, 2, 3, 5} {
			w := newWorld(t, n, overMem, Config{})
			for _, count := range []int{0, 1, n, 1000, 100_003} {
				for _, channels := range []int{1, 3} {
					noError(t, w.on(func(rank int, c *Comm) error {
						data := vector(rank, count)
						if err := w.run(t.Context(), rank, choice{plan.AllReduce, algorithm, channels, 0}, data); err != nil {
							return err
						}
						return checkSum(data, n)
					}))
				}
			}
			w.close()
			w.engines = make([]*Engine, n)
		}
	}
}

// TestCloseEndsOperations: operations under way return ErrClosed, nothing uses their buffers
// afterwards, and the operations of other ranks fail.
func TestCloseEndsOperations(t *testing.T) {
	w := newWorld(t, 3, overMem, Config{})
	data := vector(0, 1<<20)
	op, err := w.comms[0].start(w.work(0, ring, data))
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.comms[1].start(w.work(1, ring, vector(1, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "Close", w.engines[0].Close)
	w.engines[0] = nil
	if err := op.Wait(t.Context()); err != ErrClosed {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
	clear(data)
	soon(t, "Wait", func() {
		err = other.Wait(t.Context())
		if r, ok := errors.AsType[*RevokedError](err); !ok || !isRank(r.Rank, 0) || r.Cause != wire.CauseClosed {
			t.Errorf("the other rank: got %v, want that rank 0 has closed", err)
		}
	})
	if _, err := w.comms[1].start(exec.Work{}); !isType[*EndedError](err) {
		t.Errorf("afterwards: got %v, want an EndedError", err)
	}
}

// hasLeft reports whether c knows that a rank has left.
func hasLeft(c *Comm, rank int) bool {
	_, left := c.left[rank]
	return left
}

// start is Start with work by value.
func (c *Comm) start(w exec.Work) (*Op, error) { return c.Start(&w) }

// sendOn sends data to a rank of c.
func sendOn(ctx context.Context, c *Comm, data []byte, typ uint8, to int, tag int64) error {
	s, err := c.messages.StartSend(p2p.Bytes(data), typ, to, tag)
	if s == nil {
		return err
	}
	return s.Wait(ctx)
}

// recvOn receives a message from a rank of c into buf.
func recvOn(ctx context.Context, c *Comm, buf []byte, typ uint8, source int, tag int64) (p2p.Received, error) {
	r, err := c.messages.StartRecv(p2p.Bytes(buf), typ, source, tag)
	if err != nil {
		return p2p.Received{}, err
	}
	return r.Wait(ctx)
}

// isRank reports whether an error calls a member by the number of a rank.
func isRank(m p2p.Member, rank int) bool { return m.String() == fmt.Sprint("rank ", rank) }
