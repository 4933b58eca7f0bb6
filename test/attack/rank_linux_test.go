package attack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/consensus/raft"
)

// A reporter writes events to standard output. It is safe for concurrent use.
type reporter struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func newReporter() *reporter { return &reporter{enc: json.NewEncoder(os.Stdout)} }

func (r *reporter) emit(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = time.Now()
	r.enc.Encode(e) // an error means that the test has ended
}

// runSeed is the role of a seed. It runs until standard input or the seed ends.
func runSeed(args arguments) error {
	seed, err := nexar.StartSeed(context.Background(), nexar.SeedConfig{
		Listen: args.Listen, World: args.World, Elastic: args.Elastic, StateDir: args.StateDir,
		Peers: args.Peers, PeerToken: args.PeerToken, Advertise: args.Advertise, Consensus: consensusOf(args),
		FormTimeout: 2 * time.Minute, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	newReporter().emit(event{Kind: evReady, Addr: seed.Addr()})
	inputEnded := make(chan struct{})
	go func() {
		defer close(inputEnded)
		io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-inputEnded:
	case <-seed.Done():
		if seed.Err() == nil {
			<-inputEnded
		}
	}
	// The exit status reports a failure of the seed, after which an operator would restart it.
	if err := errors.Join(seed.Err(), seed.Close()); err != nil {
		return err
	}
	return goleak.Find()
}

// consensusOf returns the consensus of several seeds. A single one has none, so that its state directory has the CA, which tests read.
func consensusOf(args arguments) consensus.OpenFunc {
	if len(args.Peers) == 0 {
		return nil
	}
	return raft.Open
}

// A rank makes verified steps in a world until the world stops or the rank leaves.
type rank struct {
	*reporter
	args    arguments
	node    *nexar.Node
	state   state
	stop    atomic.Bool // stop the world at the next step
	emitted time.Time   // when the last step was reported
}

// A state is replicated by all ranks of a world.
type state struct {
	Step int64
	Sum  uint64
}

// add adds the result of a step.
func (s *state) add(result int64) {
	s.Sum = (s.Sum ^ uint64(result)) * 1_099_511_628_211 // FNV-1a
	s.Step++
}

// stateAfter returns the right state after a number of steps, which does not depend on the worlds.
func stateAfter(steps int64) (s state) {
	for s.Step < steps {
		s.add(s.Step)
	}
	return s
}

// errWrong reports a wrong result.
var errWrong = errors.New("wrong result")

// runRank is the role of a rank.
func runRank(args arguments) error {
	before, err := openFiles()
	if err != nil {
		return err
	}
	r := &rank{reporter: newReporter(), args: args}
	ctx, cancel := context.WithCancel(context.Background())
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		defer cancel()
		r.readCommands(ctx)
	}()
	err = r.run(ctx)
	if r.node != nil {
		err = errors.Join(err, r.node.Close())
	}
	switch {
	case errors.Is(err, errWrong):
		r.emit(event{Kind: evWrong, Text: err.Error()})
	case err != nil && !errors.Is(err, context.Canceled):
		r.emit(event{Kind: evError, Text: err.Error()})
	}
	if leak := leaks(before); leak != nil {
		r.emit(event{Kind: evError, Text: leak.Error()})
	} else {
		r.emit(event{Kind: evClosed})
	}
	<-listening
	return nil
}

// leaks returns an error about goroutines and files that outlive the node.
func leaks(before int) error {
	// readCommands still reads standard input.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/nexar-go/nexar/test/attack.(*rank).readCommands")); err != nil {
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		return fmt.Errorf("goroutine leak: %w", err)
	}
	return checkFiles(before)
}

// checkFiles returns an error if this process still has more open files than before after some
// seconds.
func checkFiles(before int) error {
	// The network poller of Go opens files with the first socket.
	const polling = 3
	var after int
	for range 100 {
		var err error
		if after, err = openFiles(); err != nil || after <= before+polling {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%d files were open before, %d are now", before, after)
}

// readCommands executes the commands of the test until standard input ends.
func (r *rank) readCommands(ctx context.Context) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "stop":
			r.stop.Store(true)
		case "allocate much":
			go allocateMuch()
		case "refuse pages":
			if err := refusePages(); err != nil {
				r.emit(event{Kind: evError, Text: err.Error()})
			}
		case "leave":
			go func() {
				if err := r.node.Leave(ctx); err != nil {
					r.emit(event{Kind: evError, Text: "leave: " + err.Error()})
				}
			}()
		}
	}
}

// run joins a world and makes steps in it.
func (r *rank) run(ctx context.Context) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	r.node = node
	r.emit(event{Kind: evJoined, Node: node.ID().String(), Rank: node.World().Rank(), Size: node.World().Size()})
	for comm, err := range node.Epochs(ctx) {
		if err != nil {
			r.emit(event{Kind: evOut, Removed: errors.Is(err, nexar.ErrNoQuorum), Text: err.Error()})
			return nil
		}
		r.emit(event{Kind: evEpoch, Epoch: comm.Epoch(), Rank: comm.Rank(), Size: comm.Size(), Step: r.state.Step})
		over, err := r.epoch(ctx, comm)
		if peer, ok := errors.AsType[*nexar.PeerError](err); ok {
			r.emit(event{Kind: evPeer, Epoch: comm.Epoch(), Node: peer.Node.String(), Rank: peer.Rank, Left: peer.Left, Text: err.Error()})
		}
		switch {
		case over || errors.Is(err, errWrong):
			r.emit(event{Kind: evDone, Step: r.state.Step, Sum: r.state.Sum})
			return err
		case err != nil && !errors.Is(err, nexar.ErrPeerFailed) && !errors.Is(err, nexar.ErrRevoked):
			return err
		}
	}
	r.emit(event{Kind: evDone, Step: r.state.Step, Sum: r.state.Sum, Text: "left"})
	return nil
}

// epoch makes the steps of an epoch. It reports whether the world has stopped.
func (r *rank) epoch(ctx context.Context, c *nexar.Comm) (over bool, err error) {
	before := r.state
	if err := nexar.Sync(ctx, c, &r.state); err != nil {
		return false, err
	}
	if d := r.state.Step - before.Step; before.Step > 0 && (d < -1 || d > 1) {
		return false, fmt.Errorf("%w: Sync moved from step %d to step %d, want at most one apart", errWrong, before.Step, r.state.Step)
	}
	for {
		stop, err := r.step(ctx, c)
		if err != nil {
			return false, err
		}
		if now := time.Now(); now.Sub(r.emitted) > 20*time.Millisecond {
			r.emitted = now
			r.emit(event{Kind: evStep, Step: r.state.Step, Epoch: c.Epoch(), Rank: c.Rank(), Size: c.Size()})
		}
		if stop {
			return true, c.Barrier(ctx)
		}
		if changed, err := r.node.Reconfigure(ctx); err != nil || changed {
			return false, err
		}
	}
}
