package negotiate

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/transport"
)

// TestParts: each communicator has a part of its own, until there are too many
// of them; one that has ended makes room for another.
func TestParts(t *testing.T) {
	w := shared(t, 2)
	var open [][]*party
	used := make(map[int]bool)
	for i := range shmexec.AreasMax {
		parties := w.reach(t, uint64(10+i), ranks(2), transport.ClassMemory)
		alike(t, parties, true)
		if p := parties[0].part; used[p] {
			t.Errorf("part %d is given away twice", p)
		}
		used[parties[0].part] = true
		open = append(open, parties)
	}
	logs := make([]heard, 2)
	crowded := make([]*party, 2)
	for rank := range crowded {
		crowded[rank] = w.party(90, ranks(2), rank, transport.ClassMemory, slog.New(slog.NewTextHandler(&logs[rank], nil)))
	}
	reachAll(t, crowded)
	alike(t, crowded, false)
	sumAll(t, crowded)
	for rank := range logs {
		if text := logs[rank].lines.String(); !strings.Contains(text, "no shared memory is left for a communicator") {
			t.Errorf("rank %d says %q", rank, text)
		}
	}
	for _, i := range []int{17, 3} {
		sumAll(t, open[i])
		part := open[i][0].part
		closeAll(open[i])
		open[i] = w.reach(t, uint64(200+i), ranks(2), transport.ClassMemory)
		alike(t, open[i], true)
		if got := open[i][0].part; got != part {
			t.Errorf("part %d was given back, but part %d is given out", part, got)
		}
	}
	for _, parties := range open {
		sumAll(t, parties)
	}
}

// TestPartsAreCleared: what other ranks have left in the memory does no harm to
// a communicator that gets it.
func TestPartsAreCleared(t *testing.T) {
	w := shared(t, 3)
	id, again := uint64(10), 0
	for round := range shmexec.AreasMax {
		for _, nodes := range [][]int{{0, 1}, {2, 0}, {1, 2}, {0, 1, 2}, {2, 1, 0}} {
			id++
			parties := w.reach(t, id, nodes, transport.ClassMemory)
			onBoard := parties[0].part != NoPart
			alike(t, parties, onBoard)
			if onBoard && round > 0 {
				again++
			}
			sumAll(t, parties, 1, 5000)
			closeAll(parties)
		}
	}
	if again < shmexec.AreasMax {
		t.Errorf("only %d communicators got memory that others had before", again)
	}
}

// TestLateToTheVote: a rank has voted for a part before another communicator got
// it, and the other rank comes to the vote when that one has ended there, but not
// here. What it has left is not cleared: here it may still be looked at.
func TestLateToTheVote(t *testing.T) {
	w := shared(t, 2)
	next := make([]*party, 2)
	for rank := range next {
		next[rank] = w.party(20, ranks(2), rank, transport.ClassMemory, slog.New(slog.DiscardHandler))
	}
	errs := make([]error, 2)
	var all sync.WaitGroup
	all.Go(func() { errs[0] = next[0].reach(t.Context()) })
	time.Sleep(20 * time.Millisecond) // If it has not voted by now, the test shows nothing.

	former := w.reach(t, 10, ranks(2), transport.ClassMemory)
	alike(t, former, true)
	sumAll(t, former)
	mem := memoryOf(former[1].Comm.Links(), 1)
	defer mem.release()
	area := mem.own(former[1].part)
	left := slices.Clone(area)
	former[1].close()
	all.Go(func() { errs[1] = next[1].reach(t.Context()) })
	all.Wait()
	noError(t, errs)
	alike(t, next, true)
	if next[1].part == former[1].part {
		t.Errorf("both communicators have part %d", next[1].part)
	}
	if !slices.Equal(area, left) {
		t.Error("the memory of a communicator was cleared while a rank still had it")
	}
	sumAll(t, next)
	former[0].close()
	closeAll(next)
}

// TestManyAtOnce: ranks agree on several communicators at the same time, some of
// which have ranks in common, and each works as if it were the only one.
func TestManyAtOnce(t *testing.T) {
	groups := [][]int{{0, 1, 2, 3}, {0, 1}, {2, 3}, {1, 2}, {3, 0}, {2, 1, 0}, {0, 3, 1}}
	w := shared(t, 4)
	for round := range uint64(10) {
		var every sync.WaitGroup
		results := make([][]*party, len(groups))
		for i, nodes := range groups {
			every.Go(func() {
				results[i] = w.reach(t, 1000*(round+1)+uint64(i), nodes, transport.ClassMemory)
				sumAll(t, results[i], 1, 300_000)
			})
		}
		every.Wait()
		for i, parties := range results {
			alike(t, parties, parties[0].part != NoPart)
			for j, others := range results[:i] {
				common := slices.ContainsFunc(groups[i], func(n int) bool { return slices.Contains(groups[j], n) })
				if common && parties[0].part != NoPart && parties[0].part == others[0].part {
					t.Errorf("communicators of %v and %v have part %d both", groups[i], groups[j], parties[0].part)
				}
			}
		}
		for _, parties := range results {
			closeAll(parties)
		}
	}
}

// without is an error of a rank that names another one, which is no longer there.
func without(err error, gone int) bool {
	if r, ok := errors.AsType[*engine.RevokedError](err); ok {
		return r.Peer == gone && strings.Contains(r.Text, "has left")
	}
	p, ok := errors.AsType[*engine.PeerError](err)
	return ok && p.Rank == gone
}

// TestReachWithoutARank: nobody waits for one that has died, left or given up, neither
// then nor in a collective later, which names it.
// The part of the memory, if there was one, is there for others.
func TestReachWithoutARank(t *testing.T) {
	enough := errors.New("enough")
	for _, memory := range []bool{true, false} {
		for name, test := range map[string]struct {
			end  func(w *world, p *party) // of rank 2, which has not voted
			want func(err error) bool
		}{
			"died": {func(w *world, _ *party) { w.die(2) }, func(err error) bool {
				p, ok := errors.AsType[*engine.PeerError](err)
				return ok && p.Rank == 2 && !p.Left
			}},
			"left":    {func(w *world, _ *party) { w.leave(2) }, func(err error) bool { return err == nil }},
			"gave up": {func(_ *world, p *party) { p.Vote.Cancel(enough) }, func(err error) bool { return err == nil }},
			"is done": {func(_ *world, p *party) { p.Vote.Close() }, func(err error) bool { return err == nil }},
		} {
			w := unshared(t, 3)
			if memory {
				w = shared(t, 3)
			}
			var parties []*party
			for rank := range 3 {
				parties = append(parties, w.party(7, ranks(3), rank, transport.ClassMemory, slog.New(slog.DiscardHandler)))
			}
			results := make(chan error, 2)
			for _, p := range parties[:2] {
				go func() { results <- p.reach(t.Context()) }()
			}
			time.Sleep(5 * time.Millisecond) // They mostly wait by then.
			test.end(w, parties[2])
			for range 2 {
				if err := <-results; !test.want(err) {
					t.Errorf("%s, memory %v: %v", name, memory, err)
				}
			}
			for _, p := range parties[:2] {
				if p.part != NoPart {
					t.Errorf("%s: rank %d has part %d", name, p.Rank, p.part)
				}
				go func() { results <- p.sum(t.Context(), 1) }()
			}
			for range 2 {
				if err := <-results; err == nil || name != "gave up" && !without(err, 2) {
					t.Errorf("%s, memory %v: a collective: %v", name, memory, err)
				}
			}
			if memory {
				allParts(t, w, []int{0, 1})
			}
		}
	}
}

// TestMeasureWithoutARank: a rank that is closed while links are measured is called what
// it is among all, whether or not others measure.
func TestMeasureWithoutARank(t *testing.T) {
	const closed = 2
	w := unshared(t, 4)
	w.hosts = []string{"a", "a", "b", "b"} // of which ranks 0 and 2 measure
	var parties []*party
	for rank := range 4 {
		parties = append(parties, w.party(7, ranks(4), rank, transport.ClassQUIC, slog.New(slog.DiscardHandler)))
	}
	parties[closed].Trial.Close()
	for rank, err := range w.each(func(rank int) error {
		p := parties[rank]
		return errors.Join(p.reach(t.Context()), p.sum(t.Context(), 1))
	}) {
		if !without(err, closed) && !(rank == closed && errors.Is(err, engine.ErrClosed)) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestDeathWhileLinksAreMeasured: a rank dies while another one measures its link to
// it. All ranks get its failure, whether or not they measure, and none is told that a
// call was cancelled.
func TestDeathWhileLinksAreMeasured(t *testing.T) {
	const dead = 2
	for round := range 10 {
		w := unshared(t, 4)
		w.hosts = []string{"a", "a", "b", "b"} // Ranks 0 and 2 measure.
		var parties []*party
		for rank := range 4 {
			parties = append(parties, w.party(7, ranks(4), rank, transport.ClassQUIC, slog.New(slog.DiscardHandler)))
		}
		parties[dead].Trial = nil // It votes, and measures nothing.
		time.AfterFunc(time.Duration(round)*time.Millisecond, func() { w.die(dead) })
		for rank, err := range w.each(func(rank int) error { return parties[rank].reach(t.Context()) }) {
			if p, ok := errors.AsType[*engine.PeerError](err); rank != dead && (!ok || p.Rank != dead || p.Left) {
				t.Errorf("round %d: rank %d: %v, want the failure of rank %d", round, rank, err, dead)
			}
		}
	}
}

// allParts checks that no part of the memory has got lost.
func allParts(t *testing.T, w *world, nodes []int) {
	t.Helper()
	for i := range shmexec.AreasMax {
		if got := w.reach(t, uint64(500+i), nodes, transport.ClassMemory); got[0].part == NoPart {
			t.Fatalf("only %d of %d parts are there", i, shmexec.AreasMax)
		}
	}
}

// TestReachCancelled at any moment: whoever is cancelled gets the cause, or is
// done; the others are done, each with a part or without, or wait in vain no
// longer. No part gets lost.
func TestReachCancelled(t *testing.T) {
	enough := errors.New("enough")
	w := shared(t, 3)
	for round := range 100 {
		var parties []*party
		for rank := range 3 {
			parties = append(parties, w.party(uint64(1000+round), ranks(3), rank, transport.ClassMemory, slog.New(slog.DiscardHandler)))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(time.Duration(round)*5*time.Microsecond, func() { cancel(enough) })
		errs := w.each(func(rank int) error {
			if rank == 1 {
				return parties[rank].reach(ctx)
			}
			return parties[rank].reach(t.Context())
		})
		for rank, err := range errs {
			if err != nil && !(rank == 1 && err == enough) {
				t.Errorf("round %d: rank %d: %v", round, rank, err)
			}
		}
		timer.Stop()
		cancel(nil)
		closeAll(parties)
	}
	allParts(t, w, ranks(3))
}

// TestReachBehindContext: a rank whose context has ended before does not wait
// for the others, nor they for it. It may have found all that it needs.
func TestReachBehindContext(t *testing.T) {
	enough := errors.New("enough")
	for _, w := range []*world{shared(t, 2), unshared(t, 2)} {
		parties := []*party{
			w.party(7, ranks(2), 0, transport.ClassMemory, slog.New(slog.DiscardHandler)),
			w.party(7, ranks(2), 1, transport.ClassMemory, slog.New(slog.DiscardHandler)),
		}
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		errs := w.each(func(rank int) error {
			return parties[rank].reach([]context.Context{ended, t.Context()}[rank])
		})
		if errs[0] != enough && errs[0] != nil || errs[1] != nil {
			t.Errorf("%v, want %v and nil", errs, enough)
		}
		closeAll(parties)
		if alone := w.party(8, ranks(2), 0, transport.ClassMemory, slog.New(slog.DiscardHandler)); alone.reach(ended) != enough {
			t.Error("a rank that is alone with a context that has ended goes on")
		}
	}
}
