package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// A neighborTally is what has happened in worlds of TestNeighborWorlds.
type neighborTally struct {
	worlds, failed   atomic.Int64
	views, late      atomic.Int64 // views, and those that took longer than the time between two
	toggles          atomic.Int64 // changes of the pair, from neighbors to others or back
	joins, deaths    atomic.Int64
	connections      atomic.Int64
	broken, lost     atomic.Int64 // connections, and bytes that were written to them and not read
	packets, dropped atomic.Int64 // that relays got, and lost
	messages, sums   atomic.Int64 // verified on a rank
	errors           atomic.Int64
}

func (a *neighborTally) add(b *neighborTally) {
	to := a.all()
	for i, n := range b.all() {
		to[i].Add(n.Load())
	}
}

func (a *neighborTally) all() []*atomic.Int64 {
	return []*atomic.Int64{
		&a.worlds, &a.failed, &a.views, &a.late, &a.toggles, &a.joins, &a.deaths, &a.connections, &a.broken, &a.lost, &a.packets, &a.dropped, &a.messages, &a.sums,
	}
}

// neighborReport returns the report of "make neighbor-worlds".
func neighborReport(tallies map[string]*neighborTally) string {
	var all neighborTally
	var kinds strings.Builder
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		a := tallies[name]
		all.add(a)
		fmt.Fprintf(&kinds, "%-12s %5d worlds, %d failed; two nodes became neighbors or ceased to be %d times, %d died, %d joined and left\n",
			name, a.worlds.Load(), a.failed.Load(), a.toggles.Load(), a.deaths.Load(), a.joins.Load())
	}
	return fmt.Sprintf(`Sparse worlds of 5 to 8 nodes with relays, in a simulated network and in fake time: every %v two nodes become neighbors or cease to be, since nodes
change places or one joins and leaves; printed by "make neighbor-worlds". %.0f %% of the pieces of pipes and of the relayed packets are lost, in half
of the worlds connections of the two nodes break at any byte, and in half a node dies. Ranks verify messages of 8 B to 160 KiB and all-reduces.
%s/%s, %s

A world has failed if an element is wrong, a call hangs, a communicator without a dead node ends, a living node is reported lost, or a connection
or a goroutine is left.

%s
%8d views, %d of them took longer than %v
%8d connections, %d of them broke with %d bytes that were not read
%8d packets at relays, %d of them lost
%8d messages and %d all-reduces verified on a rank
%8d worlds failed
`, neighborPeriod, 100*randomLoss, runtime.GOOS, runtime.GOARCH, runtime.Version(), kinds.String(),
		all.views.Load(), all.late.Load(), neighborPeriod, all.connections.Load(), all.broken.Load(), all.lost.Load(), all.packets.Load(), all.dropped.Load(),
		all.messages.Load(), all.sums.Load(), all.failed.Load())
}

// number returns an element of the data of a message or of a rank in a collective.
func number(stream, i, element int) uint64 {
	return (uint64(stream)<<32+uint64(i)+1)*0x9e3779b97f4a7c15 + uint64(element)
}

// A summed is the result of sum.
type summed struct {
	first uint64 // the sum of the first elements, which are free
	err   error
}

// sum makes an all-reduce of the ranks of a communicator, and checks all elements but the first.
func (w *neighborWorld) sum(ctx context.Context, c *engine.Comm, rank, step, length int, first uint64) summed {
	n, data := c.Size(), make([]byte, 8*length)
	binary.BigEndian.PutUint64(data, first)
	for i := 1; i < length; i++ {
		binary.BigEndian.PutUint64(data[8*i:], number(rank, step, i))
	}
	op, err := c.Start(&exec.Work{
		Schedule: &exec.Schedule{
			Call: wire.Call{Kind: uint8(plan.AllReduce), Count: uint64(length)},
			Plan: linkexec.Compile(plan.RingAllReduce(n, 0).Plan(rank), n), Channels: 1,
			Layout: exec.Layout{Elem: 8, Count: length},
		},
		Data: data,
		Reduce: func(dst, a, b []byte) {
			for i := 0; i < len(dst); i += 8 {
				binary.BigEndian.PutUint64(dst[i:], binary.BigEndian.Uint64(a[i:])+binary.BigEndian.Uint64(b[i:]))
			}
		},
	})
	if err == nil {
		err = op.Wait(ctx)
	}
	if err != nil {
		return summed{err: fmt.Errorf("all-reduce %d of %d elements: %w", step, length, err)}
	}
	for i := 1; i < length; i++ {
		want := uint64(0)
		for r := range n {
			want += number(r, step, i)
		}
		if got := binary.BigEndian.Uint64(data[8*i:]); got != want {
			return summed{err: fmt.Errorf("%w: element %d of %d of all-reduce %d is %#x, want %#x", errWrong, i, length, step, got, want)}
		}
	}
	w.tally.sums.Add(1)
	return summed{first: binary.BigEndian.Uint64(data)}
}

// errWrong is wrapped by the errors of wrong data.
var errWrong = errors.New("wrong data")

// commsOf makes a communicator of nodes of the first view.
func (w *neighborWorld) commsOf(id uint64, v membership.View) (comms []*engine.Comm) {
	for rank, n := range v.Nodes {
		m := w.meshes[n.ID[0]]
		comms = append(comms, m.Engine().NewComm(id, rank, linksOf(w, m, v)))
	}
	return comms
}

// work lets the ranks of a communicator, on the nodes of slots, exchange messages and make collectives until the world stops. If its doomed node
// dies, it ends with errors that name that node.
func (w *neighborWorld) work(id int, comms []*engine.Comm, slots []int) {
	n := len(comms)
	ofRank := make([]sync.WaitGroup, n)
	do := func(rank int, what string, f func(c *engine.Comm) error) {
		ofRank[rank].Add(1)
		w.working.Go(func() {
			defer ofRank[rank].Done()
			if err := f(comms[rank]); err != nil && !w.isExpected(err, slots, rank) {
				w.failf("communicator %d, rank %d on node %d: %s: %v", id, rank, slots[rank], what, err)
			}
		})
	}
	for rank := range n {
		do(rank, "collectives", func(c *engine.Comm) error { return w.sums(c, rank) })
	}
	for k := range n {
		from, tag := k%n, int64(k)
		to := (from + 1 + w.rng.IntN(n-1)) % n
		do(from, fmt.Sprint("messages to rank ", to), func(c *engine.Comm) error { return w.sendAll(c, to, tag) })
		do(to, fmt.Sprint("messages from rank ", from), func(c *engine.Comm) error { return w.receiveAll(c, from, tag) })
	}
	for rank := range n {
		w.working.Go(func() {
			ofRank[rank].Wait()
			comms[rank].Close() // It tells the others of the reason.
		})
	}
}

// isExpected reports whether an error on a rank is a consequence of the death of the doomed node.
func (w *neighborWorld) isExpected(err error, slots []int, rank int) bool {
	dead := slices.Index(slots, w.doomed)
	if dead < 0 || !w.died.Load() || errors.Is(err, errWrong) || w.ctx.Err() != nil {
		return false
	}
	p, isPeer := errors.AsType[*engine.PeerError](err)
	return rank == dead || isPeer && isRank(p.Rank, dead) && !p.Left
}

// sums makes all-reduces until a rank has seen the end. Some are so long that their payloads need grants.
func (w *neighborWorld) sums(c *engine.Comm, rank int) error {
	rng := rand.New(rand.NewPCG(w.seed, 20)) // the same on all ranks
	for step := 0; ; step++ {
		length, first := 1+rng.IntN(2_000), uint64(0)
		if rng.IntN(10) == 0 {
			length = c.Size() * (wire.PayloadMax/8 + 100)
		}
		if w.stop.Load() {
			first = 1
		}
		sum := w.sum(w.ctx, c, rank, step, length, first)
		if sum.err != nil || sum.first > 0 {
			return sum.err
		}
		time.Sleep(time.Duration(rng.IntN(80)) * time.Millisecond)
	}
}

// lengths draws the numbers of elements of messages, some of which need a grant.
func lengths(rng *rand.Rand) int {
	return [...]int{1, 1, 1, 100, 100, 1_000, 7_000, wire.PayloadMax/8 + 4_000}[rng.IntN(8)]
}

// sendAll sends numbered messages with random pauses until the world stops. The first element of the last one is odd.
func (w *neighborWorld) sendAll(c *engine.Comm, to int, tag int64) error {
	rng, pauses := rand.New(rand.NewPCG(w.seed, 30+uint64(tag))), rand.New(rand.NewPCG(w.seed, 31+uint64(tag)))
	for i, isLast := 0, false; !isLast; i++ {
		data := make([]byte, 8*lengths(rng))
		for k := 1; k < len(data)/8; k++ {
			binary.BigEndian.PutUint64(data[8*k:], number(int(tag), i, k))
		}
		isLast = w.stop.Load()
		head := uint64(i) << 1
		if isLast {
			head++
		}
		binary.BigEndian.PutUint64(data, head)
		if err := sendOn(w.ctx, c, data, 1, to, tag); err != nil {
			return fmt.Errorf("message %d of %d bytes: %w", i, len(data), err)
		}
		time.Sleep(time.Duration(pauses.IntN(120)) * time.Millisecond)
	}
	return nil
}

// receiveAll receives the messages of sendAll, each once and in order.
func (w *neighborWorld) receiveAll(c *engine.Comm, from int, tag int64) error {
	rng := rand.New(rand.NewPCG(w.seed, 30+uint64(tag)))
	data := make([]byte, wire.PayloadMax+1<<16)
	for i := 0; ; i++ {
		got, err := recvOn(w.ctx, c, data, 1, from, tag)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if want := 8 * lengths(rng); got.Bytes != want {
			return fmt.Errorf("%w: message %d has %d bytes, want %d", errWrong, i, got.Bytes, want)
		}
		head := binary.BigEndian.Uint64(data)
		if head>>1 != uint64(i) {
			return fmt.Errorf("%w: got message %d, want message %d", errWrong, head>>1, i)
		}
		for k := 1; k < got.Bytes/8; k++ {
			if e := binary.BigEndian.Uint64(data[8*k:]); e != number(int(tag), i, k) {
				return fmt.Errorf("%w: element %d of message %d is %#x, want %#x", errWrong, k, i, e, number(int(tag), i, k))
			}
		}
		w.tally.messages.Add(1)
		if head&1 == 1 {
			return nil
		}
	}
}
