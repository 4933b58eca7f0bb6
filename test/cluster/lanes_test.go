package cluster

import (
	"fmt"
	"testing"
	"time"
)

const (
	// normalMax is how long a barrier or a small all-reduce may take while a large message
	// is under way. It takes milliseconds, but the machine may be busy. If it waited for a
	// message without a receive it would never end.
	normalMax = time.Minute
	// tagLarge and tagSmall are the tags of messages.
	tagLarge, tagSmall = 7, 8
)

// large is the size of a message that takes a while.
func large() int {
	if race {
		return 64 << 20
	}
	return 256 << 20
}

// A pace is the longest that an operation has taken.
type pace struct{ Barrier, Small, Medium time.Duration }

// sideBySide has all workers make collectives, and wants each of them to take
// its normal time.
func sideBySide(t *testing.T, team []*worker, rounds int) (p pace) {
	t.Helper()
	for range rounds {
		p.Barrier = max(p.Barrier, slowest(t, team, order{Do: "loop", What: "barrier", Sets: 1}))
		p.Small = max(p.Small, slowest(t, team, order{Do: "loop", What: "all_reduce", N: 1, Sets: 1}))
		p.Medium = max(p.Medium, slowest(t, team, order{Do: "loop", What: "all_reduce", N: 100_000, Sets: 1}))
	}
	if worst := max(p.Barrier, p.Small, p.Medium); worst > normalMax {
		t.Errorf("collectives took %+v, want at most %v", p, normalMax)
	}
	return p
}

func slowest(t *testing.T, team []*worker, o order) (worst time.Duration) {
	t.Helper()
	reports := all(team, o)
	ok(t, reports)
	for _, r := range reports {
		worst = max(worst, r.Took)
	}
	return worst
}

// A message that nobody receives stays where it is: other operations do not
// wait for it, and no memory is used for it. Nor do they wait while it is
// being received.
func TestLanesWithLargeMessage(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	// The vectors of the workers are soon garbage, which shall not look like
	// memory that is needed.
	team := c.team(3, "GOGC=20")
	t.Logf("before: %+v", sideBySide(t, team, 3))
	before := all(team, order{Do: "memory"})

	sending := team[0].start(order{Do: "send", Peer: 1, Tag: tagLarge, N: large()})
	time.Sleep(100 * time.Millisecond)
	t.Logf("while nobody receives: %+v", sideBySide(t, team, 5))
	receiver := team[1].do(order{Do: "memory"}).Memory
	t.Logf("receiver: %d MiB more than before", (receiver.Peak-before[1].Memory.Peak)>>20)
	grown(t, "the receiver", before[1].Memory, receiver, 64<<20)
	select {
	case r := <-sending:
		t.Fatalf("the message was sent though nobody received it: %v", r.Failure)
	default:
	}

	receiving := team[1].start(order{Do: "recv", Peer: 0, Tag: tagLarge, N: large()})
	rounds, worst := 0, pace{}
	for done := false; !done; {
		select {
		case r := <-receiving:
			ok(t, []report{r})
			done = true
		default:
			p := sideBySide(t, team, 1)
			worst = pace{max(worst.Barrier, p.Barrier), max(worst.Small, p.Small), max(worst.Medium, p.Medium)}
			rounds++
		}
	}
	t.Logf("while it is received, in %d rounds: %+v", rounds, worst)
	ok(t, []report{team[0].await(sending)})
	for i, r := range all(team[:2], order{Do: "memory"}) {
		// Both have the message itself, once.
		grown(t, fmt.Sprint("rank ", i), before[i].Memory, r.Memory, large()+128<<20)
	}
}

// grown fails the test if the peak memory of a process has grown by more than bound.
func grown(t *testing.T, who string, before, now memory, bound int) {
	t.Helper()
	if more := now.Sys - before.Sys; more > bound {
		t.Errorf("%s has had %d MiB from the system, more than %d MiB", who, more>>20, bound>>20)
	}
	if more := now.Peak - before.Peak; more > bound && !race {
		t.Errorf("%s has had %d MiB of memory, more than %d MiB", who, more>>20, bound>>20)
	}
}

// A hundred thousand messages that nobody receives take no more memory than
// their credit, and when they are received they are all there.
func TestLanesWithManyMessages(t *testing.T) {
	t.Parallel()
	const (
		senders  = 100
		each     = 1000
		boundMax = 24 << 20
	)
	c := newCrew(t)
	team := c.team(3)
	sideBySide(t, team, 3)
	before := all(team, order{Do: "memory"})
	var sending []<-chan report
	for i := range senders {
		sending = append(sending, team[0].start(order{Do: "send", Peer: 1, Tag: tagSmall + i, N: 100, Sets: each}))
	}
	time.Sleep(300 * time.Millisecond)
	t.Logf("while nobody receives: %+v", sideBySide(t, team, 3))
	after := all(team, order{Do: "memory"})
	for rank := range 2 {
		t.Logf("rank %d: heap %d KiB, %d KiB before", rank, after[rank].Memory.Heap>>10, before[rank].Memory.Heap>>10)
		grown(t, fmt.Sprint("rank ", rank), before[rank].Memory, after[rank].Memory, boundMax)
	}
	for i := range senders {
		ok(t, []report{team[1].do(order{Do: "recv", Peer: 0, Tag: tagSmall + i, N: 100, Sets: each})})
	}
	for _, c := range sending {
		ok(t, []report{team[0].await(c)})
	}
}
