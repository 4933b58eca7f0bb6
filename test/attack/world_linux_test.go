package attack

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// heartbeatTimeout is that of attacked worlds: short, so that rounds are short,
// and long enough that a busy machine does not pass for a failure.
const heartbeatTimeout = 3 * time.Second

// A world is a seed and ranks, all of them processes.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	token string
	addrs []string // of the seeds
	ranks []*process
	vars  []string // of all ranks
}

// newWorld prepares a world and sets further variables for its ranks.
func newWorld(t *testing.T, rng *rand.Rand, vars ...string) *world {
	return &world{
		t: t, rng: rng, token: nexar.NewToken(),
		vars: append([]string{
			"NEXAR_HEARTBEAT_INTERVAL_SECS=0.3", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", heartbeatTimeout.Seconds()),
			"NEXAR_FORM_TIMEOUT_SECS=60",
		}, vars...),
	}
}

// transports draws the ways that ranks may use.
func transports(rng *rand.Rand, from ...string) string {
	return "NEXAR_TRANSPORTS=" + from[rng.IntN(len(from))]
}

// seed starts a seed and waits until it listens.
func (w *world) seed(at starter, args arguments) *process {
	w.t.Helper()
	p := start(w.t, at, "seed", fmt.Sprint("seed ", len(w.addrs)), args, "NEXAR_CLUSTER_TOKEN="+w.token)
	w.addrs = append(w.addrs, p.await(bound, "seed that listens", func(e event) bool { return e.Kind == evReady }).Addr)
	return p
}

// local starts a seed and n ranks on loopback and waits until they make steps.
func (w *world) local(n int, args arguments) *process {
	w.t.Helper()
	args.World, args.Listen = n, "127.0.0.1:0"
	seed := w.seed(nil, args)
	for range n {
		w.rank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	w.progress(1)
	return seed
}

// rank starts a further rank. It does not wait.
func (w *world) rank(at starter, args arguments, vars ...string) *process {
	w.t.Helper()
	all := append([]string{"NEXAR_CLUSTER_TOKEN=" + w.token, "NEXAR_SEEDS=" + strings.Join(w.addrs, ",")}, w.vars...)
	p := start(w.t, at, "rank", fmt.Sprint("rank ", len(w.ranks)), args, append(all, vars...)...)
	w.ranks = append(w.ranks, p)
	return p
}

// alive are the ranks that are not victims.
func (w *world) alive() []*process {
	return slices.DeleteFunc(slices.Clone(w.ranks), (*process).isHarmed)
}

// progress waits until every rank that is no victim has made so many steps more
// than any had before.
func (w *world) progress(steps int64) {
	w.t.Helper()
	w.progressWithin(bound, steps)
}

func (w *world) progressWithin(limit time.Duration, steps int64) {
	w.t.Helper()
	var most int64
	for _, p := range w.alive() {
		if e, ok := p.find(evStep); ok {
			most = max(most, e.Step)
		}
	}
	for _, p := range w.alive() {
		p.await(limit, fmt.Sprintf("progress beyond step %d", most+steps), func(e event) bool {
			w.check(p, e)
			return e.Kind == evStep && e.Step >= most+steps
		})
	}
}

// check fails the test for an event that no rank outside the attack may report.
func (w *world) check(p *process, e event) {
	w.t.Helper()
	switch e.Kind {
	case evWrong, evError, evOut:
		p.harm()
		w.t.Fatalf("%s: %s: %s\n%s", p.name, e.Kind, e.Text, p.log.Tail(4000))
	}
}

// size waits until every rank that is no victim is in a world of n.
func (w *world) size(n int) {
	w.t.Helper()
	for _, p := range w.alive() {
		p.await(bound, fmt.Sprintf("world of %d", n), func(e event) bool {
			w.check(p, e)
			last, _ := p.find(evStep)
			return e.Kind == evStep && e.Size == n && last.Size == n
		})
	}
}

// finish stops the world and checks every rank: the ranks that are no victims
// have the same state, which only right results lead to, they are
// all in the last world, their errors name victims, ends of attacked links, or links of victims alone, and they leak nothing.
func (w *world) finish() {
	w.t.Helper()
	alive := w.alive()
	for _, p := range alive {
		p.tell("stop")
	}
	for _, p := range alive {
		done := p.await(bound, "end", func(e event) bool {
			w.check(p, e)
			return e.Kind == evDone
		})
		if want := stateAfter(done.Step); done.Sum != want.Sum {
			w.t.Errorf("%s: digest %#x after %d steps, want %#x", p.name, done.Sum, done.Step, want.Sum)
		}
		if e, ok := p.find(evEpoch); !ok || e.Size != len(alive) {
			w.t.Errorf("%s: the last world had %d ranks, want the %d that were not attacked", p.name, e.Size, len(alive))
		}
	}
	w.culprits()
	for _, p := range alive {
		p.in.Close()
	}
	for _, p := range alive {
		p.await(bound, "closed node without leaks", func(e event) bool {
			w.check(p, e)
			return e.Kind == evClosed
		})
	}
	for _, p := range w.ranks {
		p.reap()
	}
}

// culprits checks the nodes named by the errors of ranks that are no victims. An error that
// reports the loss of a link by another rank names both ends: one of them has to be a victim.
func (w *world) culprits() {
	w.t.Helper()
	type place struct {
		epoch uint64
		rank  int
	}
	victims, places := make(map[string]bool), make(map[place]bool)
	for _, p := range w.ranks {
		joined, ok := p.find(evJoined)
		if !ok || !p.isSuspect() {
			continue
		}
		victims[joined.Node] = true
		events, _, _ := p.history()
		for _, e := range events {
			if e.Kind == evEpoch {
				places[place{e.Epoch, e.Rank}] = true
			}
		}
	}
	reporter := regexp.MustCompile(`\(as rank (\d+) reports`)
	for _, p := range w.alive() {
		events, _, _ := p.history()
		for _, e := range events {
			if e.Kind != evPeer || victims[e.Node] {
				continue
			}
			if match := reporter.FindStringSubmatch(e.Text); match != nil {
				if rank, err := strconv.Atoi(match[1]); err == nil && places[place{e.Epoch, rank}] {
					continue
				}
			}
			w.t.Errorf("%s: an error names %s, which was not attacked: %s", p.name, e.Node, e.Text)
		}
	}
}

// removed waits until a victim knows that it is in no world any more, or that it
// cannot continue.
func (w *world) removed(p *process) {
	w.t.Helper()
	p.await(bound, "end of the victim's membership", func(e event) bool {
		return e.Kind == evOut || e.Kind == evError
	})
}

// settle waits until the world has dealt with an attacked link, and marks the end that has
// left the world, if either has, as a victim. If a rank has reported a failure, one end
// has to leave: a seed takes its time to decide which, where both are alive.
func (w *world) settle(ends ...*process) {
	w.t.Helper()
	for _, p := range ends {
		p.accuse()
	}
	time.Sleep(heartbeatTimeout + 2*time.Second)
	for deadline := time.Now().Add(bound); ; {
		sizes := make(map[int]bool)
		for _, p := range w.alive() {
			if e, ok := p.find(evOut); ok && slices.Contains(ends, p) {
				w.t.Logf("%s is not in the world any more: %s", p.name, e.Text)
				p.harm()
				continue
			}
			e, _ := p.find(evStep)
			sizes[e.Size] = true
		}
		left := len(w.ranks) - len(w.alive())
		if len(sizes) == 1 && sizes[len(w.alive())] && (left > 0 || !w.hasFailures()) {
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the ranks have not agreed on a world within %v: sizes %v, %d ranks alive", bound, sizes, len(w.alive()))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := len(w.ranks) - len(w.alive()); n > 1 {
		w.t.Errorf("%d ranks have left the world, want at most one end of the link", n)
	}
}

// hasFailures reports whether a rank has reported that another one failed.
func (w *world) hasFailures() bool {
	return slices.ContainsFunc(w.ranks, func(p *process) bool {
		_, ok := p.find(evPeer)
		return ok
	})
}
