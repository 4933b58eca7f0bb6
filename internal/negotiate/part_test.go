package negotiate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// Each communicator has a separate part while parts are left. A returned part is used again.
func TestParts(t *testing.T) {
	w := sharedWorld(t, 2)
	var open [][]*member
	used := make(map[int]bool)
	for i := range shmexec.AreasMax {
		members := w.run(t, uint64(10+i), ranks(2), transport.ClassMemory)
		requireSame(t, members, true)
		if p := members[0].part; used[p] {
			t.Errorf("part %d is allocated twice", p)
		}
		used[members[0].part] = true
		open = append(open, members)
	}
	logs := make([]logBuffer, 2)
	crowded := make([]*member, 2)
	for rank := range crowded {
		crowded[rank] = w.member(90, ranks(2), rank, transport.ClassMemory, slog.New(slog.NewTextHandler(&logs[rank], nil)))
	}
	runAll(t, crowded)
	requireSame(t, crowded, false)
	sumAll(t, crowded)
	for rank := range logs {
		if text := logs[rank].lines.String(); !strings.Contains(text, "communicator without shared memory: all parts are in use") {
			t.Errorf("rank %d has logged %q", rank, text)
		}
	}
	for _, i := range []int{17, 3} {
		sumAll(t, open[i])
		part := open[i][0].part
		closeAll(open[i])
		open[i] = w.run(t, uint64(200+i), ranks(2), transport.ClassMemory)
		requireSame(t, open[i], true)
		if got := open[i][0].part; got != part {
			t.Errorf("part %d was returned, but part %d is allocated", part, got)
		}
	}
	for _, members := range open {
		sumAll(t, members)
	}
}

// Data that other ranks have left in a part does not disturb its next communicator.
func TestPartsAreCleared(t *testing.T) {
	w := sharedWorld(t, 3)
	id, again := uint64(10), 0
	for round := range shmexec.AreasMax {
		for _, nodes := range [][]int{{0, 1}, {2, 0}, {1, 2}, {0, 1, 2}, {2, 1, 0}} {
			id++
			members := w.run(t, id, nodes, transport.ClassMemory)
			inSharedMemory := members[0].part != NoPart
			requireSame(t, members, inSharedMemory)
			if inSharedMemory && round > 0 {
				again++
			}
			sumAll(t, members, 1, 5000)
			closeAll(members)
		}
	}
	if again < shmexec.AreasMax {
		t.Errorf("only %d communicators got a part that another had used", again)
	}
}

// A rank has contributed to the choice of a part before another communicator got it. The other
// rank reaches the exchange when that communicator has ended there, but not here. The part is
// not cleared, since it may still be read here.
func TestLateRank(t *testing.T) {
	w := sharedWorld(t, 2)
	next := make([]*member, 2)
	for rank := range next {
		next[rank] = w.member(20, ranks(2), rank, transport.ClassMemory, slog.New(slog.DiscardHandler))
	}
	errs := make([]error, 2)
	var all sync.WaitGroup
	all.Go(func() { errs[0] = next[0].run(t.Context()) })
	time.Sleep(20 * time.Millisecond) // enough to send the contribution

	former := w.run(t, 10, ranks(2), transport.ClassMemory)
	requireSame(t, former, true)
	sumAll(t, former)
	mem := memoryOf(former[1].Comm.Links(), 1)
	defer mem.release()
	area := mem.own(former[1].part)
	left := slices.Clone(area)
	former[1].close()
	all.Go(func() { errs[1] = next[1].run(t.Context()) })
	all.Wait()
	requireNoError(t, errs)
	requireSame(t, next, true)
	if next[1].part == former[1].part {
		t.Errorf("both communicators have part %d", next[1].part)
	}
	if !slices.Equal(area, left) {
		t.Error("the part was cleared while a rank still used it")
	}
	sumAll(t, next)
	former[0].close()
	closeAll(next)
}

// Ranks concurrently negotiate communicators with overlapping ranks. Each communicator works.
func TestConcurrentRuns(t *testing.T) {
	groups := [][]int{{0, 1, 2, 3}, {0, 1}, {2, 3}, {1, 2}, {3, 0}, {2, 1, 0}, {0, 3, 1}}
	w := sharedWorld(t, 4)
	rounds := uint64(10)
	if require.Race {
		rounds = 3
	}
	for round := range rounds {
		var every sync.WaitGroup
		results := make([][]*member, len(groups))
		for i, nodes := range groups {
			every.Go(func() {
				results[i] = w.run(t, 1000*(round+1)+uint64(i), nodes, transport.ClassMemory)
				sumAll(t, results[i], 1, 300_000)
			})
		}
		every.Wait()
		for i, members := range results {
			requireSame(t, members, members[0].part != NoPart)
			for j, others := range results[:i] {
				common := slices.ContainsFunc(groups[i], func(n int) bool { return slices.Contains(groups[j], n) })
				if common && members[0].part != NoPart && members[0].part == others[0].part {
					t.Errorf("communicators of %v and %v both have part %d", groups[i], groups[j], members[0].part)
				}
			}
		}
		for _, members := range results {
			closeAll(members)
		}
	}
}

// isLossOf reports whether an error names a rank that is gone.
func isLossOf(err error, gone int) bool {
	if r, ok := errors.AsType[*engine.RevokedError](err); ok {
		return isRank(r.Peer, gone) && r.Cause == wire.CauseLeft
	}
	p, ok := errors.AsType[*engine.PeerError](err)
	return ok && isRank(p.Rank, gone)
}

// No rank waits for one that has died, left or cancelled, neither during the negotiation nor in
// a later collective, which names it. Its part, if any, is free for others.
func TestRunWithoutRank(t *testing.T) {
	enough := errors.New("enough")
	for _, memory := range []bool{true, false} {
		for name, test := range map[string]struct {
			end  func(w *world, p *member) // of rank 2 before it contributes
			want func(err error) bool
		}{
			"died": {func(w *world, _ *member) { w.die(2) }, func(err error) bool {
				p, ok := errors.AsType[*engine.PeerError](err)
				return ok && isRank(p.Rank, 2) && !p.Left
			}},
			"left":      {func(w *world, _ *member) { w.leave(2) }, func(err error) bool { return err == nil }},
			"cancelled": {func(_ *world, p *member) { p.Control.Cancel(enough) }, func(err error) bool { return err == nil }},
			"closed":    {func(_ *world, p *member) { p.Control.Close() }, func(err error) bool { return err == nil }},
		} {
			w := unsharedWorld(t, 3)
			if memory {
				w = sharedWorld(t, 3)
			}
			var members []*member
			for rank := range 3 {
				members = append(members, w.member(7, ranks(3), rank, transport.ClassMemory, slog.New(slog.DiscardHandler)))
			}
			results := make(chan error, 2)
			for _, p := range members[:2] {
				go func() { results <- p.run(t.Context()) }()
			}
			time.Sleep(5 * time.Millisecond) // Most wait by now.
			test.end(w, members[2])
			for range 2 {
				if err := <-results; !test.want(err) {
					t.Errorf("%s, memory %v: %v", name, memory, err)
				}
			}
			for _, p := range members[:2] {
				if p.part != NoPart {
					t.Errorf("%s: rank %d has part %d", name, p.Rank, p.part)
				}
				go func() { results <- p.sum(t.Context(), 1) }()
			}
			for range 2 {
				if err := <-results; err == nil || name != "cancelled" && !isLossOf(err, 2) {
					t.Errorf("%s, memory %v: a collective: %v", name, memory, err)
				}
			}
			if memory {
				requireAllParts(t, w, []int{0, 1})
			}
		}
	}
}

// An error of a measurement numbers the ranks of the communicator, not those that
// measure.
func TestMeasureWithoutRank(t *testing.T) {
	const closed = 2
	w := unsharedWorld(t, 4)
	w.hosts = []string{"a", "a", "b", "b"} // ranks 0 and 2 measure
	var members []*member
	for rank := range 4 {
		members = append(members, w.member(7, ranks(4), rank, transport.ClassQUIC, slog.New(slog.DiscardHandler)))
	}
	members[closed].Trial.Close()
	for rank, err := range w.each(func(rank int) error {
		p := members[rank]
		return errors.Join(p.run(t.Context()), p.sum(t.Context(), 1))
	}) {
		if !isLossOf(err, closed) && !(rank == closed && errors.Is(err, engine.ErrClosed)) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// A rank dies while another one measures its link to it. All ranks get its failure,
// whether or not they measure, and none gets a cancellation.
func TestDeathWhileLinksAreMeasured(t *testing.T) {
	const killed = 2
	for round := range 10 {
		w := unsharedWorld(t, 4)
		w.hosts = []string{"a", "a", "b", "b"} // Ranks 0 and 2 measure.
		var members []*member
		for rank := range 4 {
			members = append(members, w.member(7, ranks(4), rank, transport.ClassQUIC, slog.New(slog.DiscardHandler)))
		}
		members[killed].Trial = nil // It contributes, but does not measure.
		time.AfterFunc(time.Duration(round)*time.Millisecond, func() { w.die(killed) })
		for rank, err := range w.each(func(rank int) error { return members[rank].run(t.Context()) }) {
			if rank == killed {
				continue
			}
			failed := -1 // The error may be that of the communicator that measures, which has other ranks.
			if p, ok := errors.AsType[*engine.PeerError](err); ok && !p.Left {
				failed, _ = members[rank].Comm.RankOf(p.Rank)
			}
			if failed != killed {
				t.Errorf("round %d: rank %d: %v, want the failure of rank %d", round, rank, err, killed)
			}
		}
	}
}

// requireAllParts checks that no part is lost.
func requireAllParts(t *testing.T, w *world, nodes []int) {
	t.Helper()
	for i := range shmexec.AreasMax {
		if got := w.run(t, uint64(500+i), nodes, transport.ClassMemory); got[0].part == NoPart {
			t.Fatalf("only %d of %d parts are free", i, shmexec.AreasMax)
		}
	}
}

// Run is cancelled at any moment on some ranks, which return the cause, or have
// finished. The other ranks finish, with or without a part, or fail. No part is lost.
func TestRunCancelled(t *testing.T) {
	enough := errors.New("enough")
	w := sharedWorld(t, 3)
	for round := range 100 {
		var members []*member
		for rank := range 3 {
			members = append(members, w.member(uint64(1000+round), ranks(3), rank, transport.ClassMemory, slog.New(slog.DiscardHandler)))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(time.Duration(round)*5*time.Microsecond, func() { cancel(enough) })
		errs := w.each(func(rank int) error {
			if rank == 1 {
				return members[rank].run(ctx)
			}
			return members[rank].run(t.Context())
		})
		for rank, err := range errs {
			if err != nil && !(rank == 1 && err == enough) {
				t.Errorf("round %d: rank %d: %v", round, rank, err)
			}
		}
		timer.Stop()
		cancel(nil)
		closeAll(members)
	}
	requireAllParts(t, w, ranks(3))
}

// A rank with an ended context does not wait for the others, nor they for it. It may have
// received all numbers.
func TestRunAfterContext(t *testing.T) {
	enough := errors.New("enough")
	for _, w := range []*world{sharedWorld(t, 2), unsharedWorld(t, 2)} {
		members := []*member{
			w.member(7, ranks(2), 0, transport.ClassMemory, slog.New(slog.DiscardHandler)),
			w.member(7, ranks(2), 1, transport.ClassMemory, slog.New(slog.DiscardHandler)),
		}
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		errs := w.each(func(rank int) error {
			return members[rank].run([]context.Context{ended, t.Context()}[rank])
		})
		if errs[0] != enough && errs[0] != nil || errs[1] != nil {
			t.Errorf("%v, want %v and nil", errs, enough)
		}
		closeAll(members)
		if alone := w.member(8, ranks(2), 0, transport.ClassMemory, slog.New(slog.DiscardHandler)); alone.run(ended) != enough {
			t.Error("the rank continues after the end of its context")
		}
	}
}

// isRank reports whether an error calls a member by the number of a rank.
func isRank(m p2p.Member, rank int) bool { return m.String() == fmt.Sprint("rank ", rank) }
