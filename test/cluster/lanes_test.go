package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

const (
	// collectiveMax limits a barrier or a small all-reduce while a large message is in flight.
	// It takes milliseconds on an idle machine. If it waited for the message, it would not
	// return before the receive.
	collectiveMax = time.Minute
	// tagLarge and tagSmall are the tags of messages.
	tagLarge, tagSmall = 7, 8
)

// large returns the size of the large message in bytes.
func large() int {
	if require.Race {
		return 64 << 20
	}
	return 256 << 20
}

// A slowestTimes has the longest duration of each operation.
type slowestTimes struct{ Barrier, Small, Medium time.Duration }

// collectivesAlongside has all workers make collectives and checks that none takes longer than
// collectiveMax.
func collectivesAlongside(t *testing.T, workers []*worker, rounds int) (p slowestTimes) {
	t.Helper()
	for range rounds {
		p.Barrier = max(p.Barrier, slowest(t, workers, command{Do: "loop", Op: "barrier", Rounds: 1}))
		p.Small = max(p.Small, slowest(t, workers, command{Do: "loop", Op: "all_reduce", N: 1, Rounds: 1}))
		p.Medium = max(p.Medium, slowest(t, workers, command{Do: "loop", Op: "all_reduce", N: 100_000, Rounds: 1}))
	}
	if worst := max(p.Barrier, p.Small, p.Medium); worst > collectiveMax {
		t.Errorf("collectives took %+v, want at most %v", p, collectiveMax)
	}
	return p
}

func slowest(t *testing.T, workers []*worker, o command) (worst time.Duration) {
	t.Helper()
	reports := runAll(workers, o)
	mustSucceed(t, reports)
	for _, r := range reports {
		worst = max(worst, r.Took)
	}
	return worst
}

// A message without a receive stays with its sender: other operations do not wait for it, and the
// receiver uses no memory for it. Other operations do not wait while it is received, either.
func TestLanesWithLargeMessage(t *testing.T) {
	t.Parallel()
	c := newWorkerSet(t)
	// With a low GOGC the garbage of the workers does not look like used memory.
	workers := c.startWorld(3, "GOGC=20")
	t.Logf("before: %+v", collectivesAlongside(t, workers, 3))
	before := runAll(workers, command{Do: "memory"})

	sending := workers[0].start(command{Do: "send", Peer: 1, Tag: tagLarge, N: large()})
	time.Sleep(100 * time.Millisecond)
	t.Logf("without a receive: %+v", collectivesAlongside(t, workers, 5))
	receiver := workers[1].do(command{Do: "memory"}).Memory
	t.Logf("receiver: %d MiB more than before", (receiver.Peak-before[1].Memory.Peak)>>20)
	checkGrowth(t, "the receiver", before[1].Memory, receiver, 64<<20)
	select {
	case r := <-sending:
		t.Fatalf("the message was sent without a receive: %v", r.Failure)
	default:
	}

	receiving := workers[1].start(command{Do: "recv", Peer: 0, Tag: tagLarge, N: large()})
	rounds, worst := 0, slowestTimes{}
	for done := false; !done; {
		select {
		case r := <-receiving:
			mustSucceed(t, []result{r})
			done = true
		default:
			p := collectivesAlongside(t, workers, 1)
			worst = slowestTimes{max(worst.Barrier, p.Barrier), max(worst.Small, p.Small), max(worst.Medium, p.Medium)}
			rounds++
		}
	}
	t.Logf("while it is received, in %d rounds: %+v", rounds, worst)
	mustSucceed(t, []result{workers[0].await(sending)})
	for i, r := range runAll(workers[:2], command{Do: "memory"}) {
		// Each has one copy of the message.
		checkGrowth(t, fmt.Sprint("rank ", i), before[i].Memory, r.Memory, large()+128<<20)
	}
}

// checkGrowth fails the test if the memory of a process has grown by more than bound bytes.
func checkGrowth(t *testing.T, name string, before, now memory, bound int) {
	t.Helper()
	if more := now.Sys - before.Sys; more > bound {
		t.Errorf("%s: the Go runtime has taken %d MiB more from the system, want at most %d MiB", name, more>>20, bound>>20)
	}
	if more := now.Peak - before.Peak; more > bound && !require.Race {
		t.Errorf("%s: peak memory has grown by %d MiB, want at most %d MiB", name, more>>20, bound>>20)
	}
}

// A hundred thousand messages without a receive use no more memory than their credit, and later
// receives get all of them.
func TestLanesWithManyMessages(t *testing.T) {
	t.Parallel()
	const (
		senders  = 100
		each     = 1000
		boundMax = 24 << 20
	)
	c := newWorkerSet(t)
	workers := c.startWorld(3)
	collectivesAlongside(t, workers, 3)
	before := runAll(workers, command{Do: "memory"})
	var sending []<-chan result
	for i := range senders {
		sending = append(sending, workers[0].start(command{Do: "send", Peer: 1, Tag: tagSmall + i, N: 100, Rounds: each}))
	}
	time.Sleep(300 * time.Millisecond)
	t.Logf("without a receive: %+v", collectivesAlongside(t, workers, 3))
	after := runAll(workers, command{Do: "memory"})
	for rank := range 2 {
		t.Logf("rank %d: heap %d KiB, %d KiB before", rank, after[rank].Memory.Heap>>10, before[rank].Memory.Heap>>10)
		checkGrowth(t, fmt.Sprint("rank ", rank), before[rank].Memory, after[rank].Memory, boundMax)
	}
	for i := range senders {
		mustSucceed(t, []result{workers[1].do(command{Do: "recv", Peer: 0, Tag: tagSmall + i, N: 100, Rounds: each})})
	}
	for _, c := range sending {
		mustSucceed(t, []result{workers[0].await(c)})
	}
}
