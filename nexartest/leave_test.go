package nexartest_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// A leaving is an order in which the ranks send to rank 0 and leave.
type leaving struct {
	name string
	// wait returns the time before a rank sends.
	wait func(rank int, random *rand.Rand) time.Duration
}

func leavings() []leaving {
	return []leaving{
		{"at once", func(int, *rand.Rand) time.Duration { return 0 }},
		{"near ranks first", func(rank int, _ *rand.Rand) time.Duration { return time.Duration(rank) * 40 * time.Millisecond }},
		{"at random", func(_ int, random *rand.Rand) time.Duration {
			return time.Duration(random.IntN(800)) * time.Millisecond
		}},
		{"far apart", func(_ int, random *rand.Rand) time.Duration { return time.Duration(random.IntN(20)) * time.Second }},
	}
}

// leavesVariable is the number of worlds of TestSendAndLeave for each topology, number of ranks and order; firstVariable is the
// random seed of the first.
const leavesVariable, firstVariable = "LEAVES", "FIRST"

// TestSendAndLeave: every rank sends to rank 0 and leaves. Relays leave as well. No message is lost, no node counts as failed, and
// every node has left within two heartbeat timeouts. LEAVES=200 runs that many worlds with short messages for each topology, number
// of ranks and order; FIRST=7 is the random seed of the first.
func TestSendAndLeave(t *testing.T) {
	worlds, first := fromEnvironment(t, leavesVariable), fromEnvironment(t, firstVariable)
	for _, topology := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube", "full"} {
		for _, n := range []int{8, 12, 16, 24, 32} {
			for i, order := range leavings() {
				sizes := []int{8}
				if worlds == 0 && n == 12 {
					sizes = append(sizes, 3000, 1<<20)
				}
				for _, size := range sizes {
					t.Run(fmt.Sprintf("%s/%d/%s/%d", topology, n, order.name, size), func(t *testing.T) {
						for seed := first; seed < first+max(worlds, 1) && !t.Failed(); seed++ {
							sendAndLeave(t, topology, n, size, order, seed<<16+uint64(i+n))
						}
					})
				}
			}
		}
	}
}

// fromEnvironment returns the number in a variable, or 0.
func fromEnvironment(t *testing.T, name string) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	x, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return x
}

// leaveMax is the longest time that a node may take to leave: two heartbeat timeouts, and a little for the last goodbyes.
const leaveMax = 10*time.Second + 500*time.Millisecond

// An eventLog counts the events that must not happen when nodes leave: the node logs them as warnings or errors.
type eventLog struct {
	slog.Handler
	mu   *sync.Mutex
	list *[]string
}

func (e eventLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (e eventLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += fmt.Sprintf(" %v", a); return true })
	e.mu.Lock()
	defer e.mu.Unlock()
	*e.list = append(*e.list, text)
	return nil
}

func (e eventLog) WithAttrs([]slog.Attr) slog.Handler { return e }

func sendAndLeave(t *testing.T, topology string, n, size int, order leaving, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		log := eventLog{Handler: slog.DiscardHandler, mu: new(sync.Mutex), list: &events}
		w := nexartest.Cluster{
			Config: nexar.Config{Topology: topology, Log: slog.New(log)}, Link: nexartest.Link{Delay: time.Millisecond}, Random: seed + 1,
		}.New(t, n)
		w.Start(func(ctx context.Context, nd *nexar.Node) error {
			if err := sendToFirst(ctx, nd.World(), size, order, seed); err != nil {
				return err
			}
			start := time.Now()
			err := nd.Close()
			if took := time.Since(start); took > leaveMax {
				t.Errorf("rank %d took %v to leave, want at most %v", nd.World().Rank(), took, leaveMax)
			}
			return err
		})
		wantAll(t, w)
		log.mu.Lock()
		defer log.mu.Unlock()
		for _, e := range events {
			if !strings.Contains(e, "topology does not fit") {
				t.Errorf("seed %d: %s", seed, e)
			}
		}
	})
}

// sendToFirst sends a message of a rank to rank 0, which receives one of each rank.
func sendToFirst(ctx context.Context, c *nexar.Comm, size int, order leaving, seed uint64) error {
	data := make([]byte, size)
	if c.Rank() != 0 {
		time.Sleep(order.wait(c.Rank(), rand.New(rand.NewPCG(seed, uint64(c.Rank())))))
		for i := range data {
			data[i] = byte(c.Rank() + i)
		}
		return nexar.Send(ctx, c, data, 0, 1)
	}
	for from := 1; from < c.Size(); from++ {
		if _, err := nexar.Recv(ctx, c, data, from, 1); err != nil {
			return err
		}
		for i, x := range data {
			if x != byte(from+i) {
				return fmt.Errorf("byte %d of rank %d is %d, want %d", i, from, x, byte(from+i))
			}
		}
	}
	return nil
}
