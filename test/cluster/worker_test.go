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
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
	"github.com/nexar-go/nexar/internal/testhook"
)

// A command is a line of JSON on the standard input of a worker.
type command struct {
	ID       int
	Do       string        // key of handlers
	Op       string        // key of operations, for a loop, or a kind of flood
	N        int           // elements, ranks of a world, or handshakes per second
	Peer     int           // of a message; for survive, the size of the last world
	Tag      int           // of a message
	Rounds   int           // rounds of a loop, or messages; 0: no limit
	Timeout  time.Duration // of the command, or the FormTimeout of a seed; 0: none
	Duration time.Duration // of stress and flood
	Every    time.Duration // between two steps of a changing world
	Addr     string        // at which a seed listens, or the target of a flood
	From     string        // source address of a flood
	Window   time.Duration // see flood
	// Fields of a replicated seed:
	Peers []string
	Dir   string
	Max   int // largest number of nodes
}

// A result is the outcome of a command: a line of JSON on standard output.
type result struct {
	ID         int
	Failure    *failure // nil after success
	At         time.Time
	Took       time.Duration
	Rounds     int // completed rounds of a loop
	Rank       int
	Size       int
	Text       string // identity of a node, or address of a seed
	Memory     memory
	Peers      []nexar.Peer
	CallsAfter []*failure // of calls after a failure
	Epochs     []epoch
	State      replicaState
	Times      []time.Duration // one for each operation
}

// A failure is an error that a worker sends to the test.
type failure struct {
	Text                                  string
	PeerFailed, Revoked, Closed, Deadline bool
	Rank                                  int // of the PeerError; -1 if there is none
	Node, Addr                            string
	Left                                  bool
	Took                                  time.Duration
	Late                                  []nexar.LateRank // of the TimeoutError
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
	if e, ok := errors.AsType[*nexar.TimeoutError](err); ok {
		f.Late = e.Late
	}
	return f
}

func (f *failure) String() string {
	if f == nil {
		return "no failure"
	}
	return fmt.Sprintf("%s (peer failed: %t, rank %d, left: %t, revoked: %t)", f.Text, f.PeerFailed, f.Rank, f.Left, f.Revoked)
}

// A workerState is the state of a worker, shared by its commands.
type workerState struct {
	node     *nexar.Node
	nodes    []*nexar.Node // those of a world that is all in this process
	seed     *nexar.Seed
	views    viewLog // of nodes
	progress progressLog
}

func (s *workerState) comm() *nexar.Comm { return s.node.World() }

// A handler executes a command and fills in the result.
type handler func(ctx context.Context, s *workerState, o command, r *result) error

// handlers returns the handlers by [command].Do. Most of them need a node, which "join" provides.
func handlers() map[string]handler {
	return map[string]handler{
		"seed": startSeed, "join": join, "close": closeNode,
		"id": identify, "check": check, "loop": loop, "call-after-failure": callAfterFailure,
		"send": send, "recv": recv, "memory": reportMemory, "free-memory": freeMemory, "reduce-floats": reduceFloats,
		"peers": peers, "survive": survive, "outlast": outlast, "wait-for-failure": waitForFailure, "flood": flood, "stress": stress, "status": askStatus,
		"form-in-process": formInProcess, "change": change, "change-and-rejoin": changeAndRejoin, "progress": progress, "changing-peers": changingPeers, "leave": leave, "stop": stop,
		"check-more": checkMore, "work-in-part": workInPart, "traffic": traffic, "tamper": tamper,
		"join-many": joinMany, "loop-many": loopMany, "recover-many": recoverMany, "heap-of-nodes": reportHeap,
		"time-reduces": timeReduces, "stream": stream, "absorb": absorb, "time-messages": timeMessages,
	}
}

// runWorker executes commands, each on its own goroutine, until in ends. Then it closes its
// nodes and its seed, and reports leaked goroutines.
func runWorker(in io.Reader, out io.Writer) (exit int) {
	var (
		s    workerState
		mu   sync.Mutex
		enc  = json.NewEncoder(out)
		all  sync.WaitGroup
		list = handlers()
	)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o command
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, "command:", err)
			return 2
		}
		all.Go(func() {
			r := execute(ctx, list[o.Do], &s, o)
			mu.Lock()
			defer mu.Unlock()
			enc.Encode(r) // an error means that the test has ended
		})
	}
	stop()
	all.Wait()
	if err := s.close(); err != nil {
		fmt.Fprintln(os.Stderr, "close:", err)
		exit = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "goroutine leak:", err)
		exit = 1
	}
	return exit
}

func execute(ctx context.Context, do handler, s *workerState, o command) result {
	if o.Timeout > 0 && o.Do != "seed" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	r := result{ID: o.ID}
	began := time.Now()
	err := do(ctx, s, o, &r)
	r.At, r.Took, r.Failure = time.Now(), time.Since(began), failureOf(err)
	return r
}

func (s *workerState) close() (err error) {
	if s.node != nil {
		err = s.node.Close()
	}
	for _, n := range s.nodes {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	if s.seed != nil {
		err = errors.Join(err, s.seed.Close())
	}
	return err
}

func startSeed(ctx context.Context, s *workerState, o command, r *result) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s.seed, err = nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: o.Addr, World: o.N, FormTimeout: o.Timeout, Log: log,
		Peers: o.Peers, StateDir: o.Dir, Consensus: raft.Open, Elastic: o.Max > 0, ElasticMax: o.Max,
	})
	if err == nil {
		r.Text = s.seed.Addr()
	}
	return err
}

func join(ctx context.Context, s *workerState, _ command, r *result) (err error) {
	if kind := os.Getenv(tamperEnv); kind != "" {
		ctx = testhook.WithTamper(ctx, newTamper(kind))
	}
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	s.node = node
	return identify(ctx, s, command{}, r)
}

func identify(_ context.Context, s *workerState, _ command, r *result) error {
	r.Rank, r.Size, r.Text = s.comm().Rank(), s.comm().Size(), s.node.ID().String()
	return nil
}

func peers(_ context.Context, s *workerState, _ command, r *result) error {
	r.Peers = s.node.Peers()
	return nil
}

// wantPeers checks that the result of "peers" has n peers, so that a check of each is not empty.
func wantPeers(t *testing.T, rank int, r result, n int) {
	t.Helper()
	if r.Failure != nil || len(r.Peers) != n {
		t.Errorf("rank %d reports %d peers (%v), want %d", rank, len(r.Peers), r.Failure, n)
	}
}

func closeNode(_ context.Context, s *workerState, _ command, _ *result) error { return s.node.Close() }

func check(ctx context.Context, s *workerState, o command, _ *result) error {
	return checkWorld(ctx, s.comm(), o.Tag)
}

// loop repeats an operation, [command].Rounds times or, if that is 0, until it fails.
func loop(ctx context.Context, s *workerState, o command, r *result) error {
	op := operations()[o.Op]
	for o.Rounds == 0 || r.Rounds < o.Rounds {
		if err := op(ctx, s.comm(), o.N, r.Rounds); err != nil {
			return err
		}
		r.Rounds++
	}
	return nil
}

// callsAfterFailure are the operations of callAfterFailure.
func callsAfterFailure() []string { return []string{"all_reduce", "barrier", "send", "recv"} }

// callAfterFailure makes one call of each kind on a communicator that has failed.
func callAfterFailure(ctx context.Context, s *workerState, _ command, r *result) error {
	for _, what := range callsAfterFailure() {
		began := time.Now()
		f := failureOf(operations()[what](ctx, s.comm(), 1, 0))
		if f == nil {
			return fmt.Errorf("%s after a failure: no error", what)
		}
		f.Took = time.Since(began)
		r.CallsAfter = append(r.CallsAfter, f)
	}
	return nil
}

// send sends messages of N bytes. The first byte is the number of the message.
func send(ctx context.Context, s *workerState, o command, r *result) error {
	data := make([]byte, o.N)
	for i := range data {
		data[i] = byte(i)
	}
	for ; r.Rounds < max(1, o.Rounds); r.Rounds++ {
		data[0] = byte(r.Rounds)
		if err := nexar.Send(ctx, s.comm(), data, o.Peer, nexar.Tag(o.Tag)); err != nil {
			return err
		}
	}
	return nil
}

// recv receives the messages of send.
func recv(ctx context.Context, s *workerState, o command, r *result) error {
	data := make([]byte, o.N)
	for ; r.Rounds < max(1, o.Rounds); r.Rounds++ {
		got, err := nexar.Recv(ctx, s.comm(), data, o.Peer, nexar.Tag(o.Tag))
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
