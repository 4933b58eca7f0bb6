package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// An epoch describes one communicator of a worker.
type epoch struct {
	At           time.Time // when the worker received it
	Adopted      time.Time // when the last node got its view; only of recoverMany
	Number       uint64
	Rank         int
	Size         int
	Rounds       int       // completed
	First        time.Time // end of the first round
	Reconfigured time.Time // when a reconfiguration ended the epoch
}

// survive repeats an operation on the communicator of each epoch, until the world has at most
// [command].Peer ranks and [command].Rounds rounds there have succeeded.
func survive(ctx context.Context, s *workerState, o command, r *result) error {
	op := operations()[o.Op]
	for comm, err := range s.node.Epochs(ctx) {
		if err != nil {
			return err
		}
		e := epoch{At: time.Now(), Number: comm.Epoch(), Rank: comm.Rank(), Size: comm.Size()}
		for err == nil && (comm.Size() > o.Peer || e.Rounds < o.Rounds) {
			if err = op(ctx, comm, o.N, e.Rounds); err == nil {
				e.Rounds++
			}
		}
		r.Epochs = append(r.Epochs, e)
		if err == nil {
			return comm.Barrier(ctx)
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("Epochs has ended")
}

// outlast repeats an operation and an all-reduce on the communicator of each epoch, until the command "stop".
func outlast(ctx context.Context, s *workerState, o command, r *result) error {
	op := operations()[o.Op]
	for comm, err := range s.node.Epochs(ctx) {
		if err != nil {
			return err
		}
		s.progress.begin(comm)
		r.Epochs = append(r.Epochs, epoch{At: time.Now(), Number: comm.Epoch(), Rank: comm.Rank(), Size: comm.Size()})
		stopped := []int64{0}
		for round := 0; err == nil && stopped[0] == 0; round++ {
			if err = op(ctx, comm, o.N, round); err != nil {
				break
			}
			stopped[0] = s.progress.stopping()
			err = nexar.AllReduce(ctx, comm, stopped, nexar.Max)
			s.progress.withCurrent(func(e *epoch) { e.Rounds++ })
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("Epochs has ended")
}

// waitForFailure waits for a message that is never sent, and after its failure for the next epoch.
func waitForFailure(ctx context.Context, s *workerState, o command, r *result) error {
	for comm, err := range s.node.Epochs(ctx) {
		if err != nil {
			return err
		}
		r.Epochs = append(r.Epochs, epoch{At: time.Now(), Number: comm.Epoch(), Rank: comm.Rank(), Size: comm.Size()})
		if len(r.Epochs) > 1 {
			return comm.Barrier(ctx)
		}
		began := time.Now()
		_, err = nexar.Recv(ctx, comm, make([]byte, 8), o.Peer, 1)
		f := failureOf(err)
		f.Took = time.Since(began)
		r.CallsAfter = append(r.CallsAfter, f)
		if ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("Epochs has ended")
}

// A survivalTrial kills ranks of a world, one after the other or several at once.
type survivalTrial struct {
	topology   string // "" for full
	transports string // "" for all
	op         string
	n          int
	kills      []int // numbers of ranks that are killed at once
}

func survivalTrials() []survivalTrial {
	return []survivalTrial{
		{"", "shm", "all_reduce", 1, []int{1, 1, 1}},
		{"", "tcp", "all_reduce", 100_000, []int{2, 1}},
		{"", "quic", "barrier", 0, []int{1, 2}},
		{"", "shm", "ring", 100_000, []int{3}},
		{"", "", "all_reduce", 1 << 20, []int{1, 1}},
	}
}

// TestSurvive kills ranks. The others go on each time, with the right results and in the order of their
// ranks.
func TestSurvive(t *testing.T) {
	count, long := len(survivalTrials()), os.Getenv(survivalsVariable)
	if long != "" {
		var err error
		if count, err = strconv.Atoi(long); err != nil || count < 1 {
			t.Fatalf("%s=%q, want a number", survivalsVariable, long)
		}
	}
	var took []time.Duration
	failed, killed := 0, 0
	for i := range count {
		s := survivalTrials()[i%len(survivalTrials())]
		fine := t.Run(fmt.Sprintf("%d/%s/%s", i+1, s.transports, s.op), func(t *testing.T) { took = append(took, s.run(t)...) })
		for _, k := range s.kills {
			killed += k
		}
		if !fine {
			failed++
		}
	}
	if long != "" {
		report := survivalsReport(took, count, failed, killed)
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

// survivalsVariable is the number of worlds of TestSurvive, by default one of each kind.
const survivalsVariable = "SURVIVALS"

// run returns the time from each kill until the last survivor has the next communicator.
func (s survivalTrial) run(t *testing.T) (took []time.Duration) {
	const ranks = 6
	left := watchLeftovers(t)
	c := newWorkerSet(t)
	vars := left.vars()
	if s.transports != "" {
		vars = append(vars, "NEXAR_TRANSPORTS="+s.transports)
	}
	if s.topology != "" {
		vars = append(vars, "NEXAR_TOPOLOGY="+s.topology)
	}
	workers := c.startWorld(ranks, vars...)
	goal := ranks
	for _, k := range s.kills {
		goal -= k
	}
	running := make([]<-chan result, ranks)
	for rank, w := range workers {
		running[rank] = w.start(command{Do: "survive", Op: s.op, N: s.n, Peer: goal, Rounds: 20})
	}
	alive := slices.Clone(workers)
	var killed []time.Time
	for _, k := range s.kills {
		time.Sleep(300*time.Millisecond + rand.N(200*time.Millisecond))
		for range k {
			i := rand.IntN(len(alive))
			alive[i].kill(os.Kill)
			alive = slices.Delete(alive, i, i+1)
		}
		killed = append(killed, time.Now())
	}
	took = make([]time.Duration, len(killed))
	for i, w := range alive {
		r := w.await(running[w.rank])
		if r.Failure != nil {
			t.Errorf("rank %d: %v\n%+v", w.rank, r.Failure, r.Epochs)
			continue
		}
		checkEpochs(t, r.Epochs, i, goal, ranks, s.topology != "")
		for k, d := range recoveries(r.Epochs, killed) {
			took[k] = max(took[k], d)
		}
	}
	t.Logf("the last survivor had the next communicator after %v", took)
	return took
}

// survivalsReport returns the report of "make survivals".
func survivalsReport(took []time.Duration, worlds, failed, killed int) string {
	slices.Sort(took)
	at := func(p float64) time.Duration {
		return took[max(0, int(p*float64(len(took))+0.999999)-1)].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf(`Ranks of worlds of six processes are killed with kill -9, one or several at once, up to three times in a
world, in the middle of verified collectives; printed by "make survivals".
%s

The time is from the last kill until the last survivor has the communicator of the survivors. A world
has failed if a survivor has a wrong result, hangs, has another rank than its position among the
survivors, or leaves a resource behind.

%d worlds, %d failed, %d ranks killed, %d recoveries   p50 %v   p99 %v   most %v
`, machine(), worlds, failed, killed, len(took), at(0.5), at(0.99), at(1))
}

// checkEpochs checks that the sizes of the epochs of a survivor decrease, and the rank and size of the
// last one. With relays, an epoch may have the ranks of the one before: if all relays between two ranks die,
// frames are lost.
func checkEpochs(t *testing.T, epochs []epoch, rank, size, before int, relays bool) {
	t.Helper()
	last := epoch{Size: before + 1}
	for _, e := range epochs {
		if e.Number <= last.Number || e.Size > last.Size || e.Size == last.Size && !relays {
			t.Errorf("epoch %d of %d ranks follows epoch %d of %d", e.Number, e.Size, last.Number, last.Size)
		}
		last = e
	}
	if last.Rank != rank || last.Size != size || last.Rounds < 20 {
		t.Errorf("last epoch: rank %d of %d with %d rounds, want rank %d of %d with 20", last.Rank, last.Size, last.Rounds, rank, size)
	}
}

// recoveries returns the time from each kill to the next communicator.
func recoveries(epochs []epoch, killed []time.Time) (took []time.Duration) {
	for _, at := range killed {
		for _, e := range epochs {
			if e.At.After(at) {
				took = append(took, e.At.Sub(at))
				break
			}
		}
	}
	return took
}

// A rank that does not ask for the next communicator within the recovery timeout is removed as well. The
// others go on, and it gets an error.
func TestSurviveWithoutLateRank(t *testing.T) {
	t.Parallel()
	nodes := form(t, 4, func(cfg *nexar.Config) { cfg.RecoveryTimeout = 8 * time.Second })
	const late = 1
	if err := nodes[3].Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	var all, others sync.WaitGroup
	others.Add(2)
	for rank, n := range nodes[:3] {
		all.Go(func() {
			if rank != late {
				defer others.Done()
			}
			round := 0
			for c, err := range n.Epochs(ctx) {
				if round++; rank == late && round == 1 {
					others.Wait() // returns, as they go on without this rank
					continue
				}
				if rank == late && err == nil {
					// The epoch of three ranks may be decided before the removal of this
					// rank.
					if err := c.Barrier(ctx); err == nil {
						t.Errorf("the late rank crosses a barrier with %d ranks", c.Size())
					}
					continue
				}
				if rank == late {
					if !errors.Is(err, nexar.ErrNoQuorum) {
						t.Errorf("the late rank gets %v, want an ErrNoQuorum", err)
					}
					return
				}
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
					return
				}
				if err := c.Barrier(ctx); err == nil && c.Size() == 2 {
					return
				}
			}
		})
	}
	all.Wait()
}
