package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
)

// An order is what a worker shall do: a line of JSON on its standard input.
type order struct {
	ID   int
	Do   string        // a job
	What string        // the operation of a loop
	N    int           // elements, or ranks of a world
	Peer int           // of a message
	Tag  int           // of a message
	Sets int           // rounds of a loop, or messages
	For  time.Duration // how long a job may take, or a seed may wait; 0: for ever
	Addr string        // for a seed to listen at, or to be flooded
	From string        // address of a flooder
	Slot time.Duration // of a flooder
	// Of a seed that is one of several:
	Peers []string
	Dir   string
	Max   int // nodes
	// Time is how long a job goes on that has no rounds.
	Time time.Duration
}

// A report says how an order has ended: a line of JSON on standard output.
type report struct {
	ID      int
	Failure *failure // nil if all went well
	At      time.Time
	Took    time.Duration
	Rounds  int // of a loop that have ended well
	Rank    int
	Size    int
	Text    string // node, or address
	Memory  memory
	Peers   []nexar.Peer
	Later   []*failure // of calls after a failure
	Epochs  []epoch
	Ledger  ledger
	Times   []time.Duration // of operations, one by one
}

// A failure is an error as it crosses from one process to another.
type failure struct {
	Text                                  string
	PeerFailed, Revoked, Closed, Deadline bool
	Rank                                  int // of the PeerError; -1 if there is none
	Node, Addr                            string
	Left                                  bool
	Took                                  time.Duration
}

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{
		Text: err.Error(), Rank: -1,
		PeerFailed: errors.Is(err, nexar.ErrPeerFailed),
		Revoked:    errors.Is(err, nexar.ErrRevoked),
		Closed:     errors.Is(err, nexar.ErrClosed),
		Deadline:   errors.Is(err, context.DeadlineExceeded),
	}
	if e, ok := errors.AsType[*nexar.PeerError](err); ok {
		f.Rank, f.Node, f.Addr, f.Left = e.Rank, e.Node.String(), e.Addr, e.Left
	}
	return f
}

func (f *failure) String() string {
	if f == nil {
		return "no failure"
	}
	return fmt.Sprintf("%s (peer failed: %t, rank %d, left: %t, revoked: %t)", f.Text, f.PeerFailed, f.Rank, f.Left, f.Revoked)
}

// A desk is where a worker works.
type desk struct {
	node  *nexar.Node
	crowd []*nexar.Node // those of a world that is all in this process
	seed  *nexar.Seed
	post  post
}

func (d *desk) comm() *nexar.Comm { return d.node.World() }

// A job carries an order out. What it finds goes into the report.
type job func(ctx context.Context, d *desk, o order, r *report) error

// jobs are what a worker can do. Those that need a world come after join.
func jobs() map[string]job {
	return map[string]job{
		"seed": startSeed, "join": join, "close": closeNode,
		"id": identify, "check": check, "loop": loop, "later": later,
		"send": send, "recv": recv, "memory": measure, "tidy": tidy, "floats": floats,
		"peers": peers, "survive": survive, "outlast": outlast, "flood": flood, "endure": endure, "status": askStatus,
		"crowd": assemble, "change": change, "persist": persist, "progress": progress, "leave": leave, "stop": stop,
	}
}

// work carries out orders, each on its own goroutine, until its input ends.
// Then it closes what it has, and reports goroutines that are left over.
func work(in io.Reader, out io.Writer) (exit int) {
	var (
		d    desk
		mu   sync.Mutex
		enc  = json.NewEncoder(out)
		all  sync.WaitGroup
		list = jobs()
	)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, "order:", err)
			return 2
		}
		all.Go(func() {
			r := carryOut(ctx, list[o.Do], &d, o)
			mu.Lock()
			defer mu.Unlock()
			enc.Encode(r) // fails if nobody listens any more
		})
	}
	stop()
	all.Wait()
	if err := d.close(); err != nil {
		fmt.Fprintln(os.Stderr, "close:", err)
		exit = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "left over:", err)
		exit = 1
	}
	return exit
}

func carryOut(ctx context.Context, do job, d *desk, o order) report {
	if o.For > 0 && o.Do != "seed" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	r := report{ID: o.ID}
	began := time.Now()
	err := do(ctx, d, o, &r)
	r.At, r.Took, r.Failure = time.Now(), time.Since(began), failureOf(err)
	return r
}

func (d *desk) close() (err error) {
	if d.node != nil {
		err = d.node.Close()
	}
	for _, n := range d.crowd {
		err = errors.Join(err, n.Close())
	}
	if d.seed != nil {
		err = errors.Join(err, d.seed.Close())
	}
	return err
}

func startSeed(ctx context.Context, d *desk, o order, r *report) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	d.seed, err = nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: o.Addr, World: o.N, FormTimeout: o.For, Log: log,
		Peers: o.Peers, StateDir: o.Dir, Consensus: raft.Open, Elastic: o.Max > 0, ElasticMax: o.Max,
	})
	if err == nil {
		r.Text = d.seed.Addr()
	}
	return err
}

func join(ctx context.Context, d *desk, _ order, r *report) (err error) {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	d.node = node
	return identify(ctx, d, order{}, r)
}

func identify(_ context.Context, d *desk, _ order, r *report) error {
	r.Rank, r.Size, r.Text = d.comm().Rank(), d.comm().Size(), d.node.ID().String()
	return nil
}

func peers(_ context.Context, d *desk, _ order, r *report) error {
	r.Peers = d.node.Peers()
	return nil
}

func closeNode(_ context.Context, d *desk, _ order, _ *report) error { return d.node.Close() }

func check(ctx context.Context, d *desk, o order, _ *report) error {
	return checkWorld(ctx, d.comm(), o.Tag)
}

// loop does the same again and again, until it fails or has done it so many
// times.
func loop(ctx context.Context, d *desk, o order, r *report) error {
	op := operations()[o.What]
	for o.Sets == 0 || r.Rounds < o.Sets {
		if err := op(ctx, d.comm(), o.N, r.Rounds); err != nil {
			return err
		}
		r.Rounds++
	}
	return nil
}

// later makes one call of each kind on a communicator that has failed.
func later(ctx context.Context, d *desk, _ order, r *report) error {
	for _, what := range []string{"all_reduce", "barrier", "send", "recv"} {
		began := time.Now()
		f := failureOf(operations()[what](ctx, d.comm(), 1, 0))
		if f == nil {
			return fmt.Errorf("%s after a failure: no error", what)
		}
		f.Took = time.Since(began)
		r.Later = append(r.Later, f)
	}
	return nil
}

// send sends messages of N bytes; the first element says which of them it is.
func send(ctx context.Context, d *desk, o order, r *report) error {
	data := make([]byte, o.N)
	for i := range data {
		data[i] = byte(i)
	}
	for ; r.Rounds < max(1, o.Sets); r.Rounds++ {
		data[0] = byte(r.Rounds)
		if err := nexar.Send(ctx, d.comm(), data, o.Peer, nexar.Tag(o.Tag)); err != nil {
			return err
		}
	}
	return nil
}

// recv receives what send sends.
func recv(ctx context.Context, d *desk, o order, r *report) error {
	data := make([]byte, o.N)
	for ; r.Rounds < max(1, o.Sets); r.Rounds++ {
		got, err := nexar.Recv(ctx, d.comm(), data, o.Peer, nexar.Tag(o.Tag))
		if err != nil {
			return err
		}
		if got.Count != o.N || data[0] != byte(r.Rounds) || data[o.N-1] != byte(o.N-1) && o.N > 1 {
			return fmt.Errorf("message %d: %d bytes, which begin with %d and end with %d", r.Rounds, got.Count, data[0], data[o.N-1])
		}
		clear(data)
	}
	return nil
}
