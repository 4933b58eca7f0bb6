package attack

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testhost"
)

// heartbeatTimeout is the timeout of attacked worlds: short, so that rounds are short, and long enough
// that a busy machine does not look like a failure.
const heartbeatTimeout = 3 * time.Second

// A world has a seed and ranks, all of them processes.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	token string
	addrs []string // of the seeds
	ranks []*process
	hosts []*testhost.Host // nil on this host
	vars  []string         // of all ranks
}

// newWorld returns a world without processes. vars are additional variables of its ranks.
func newWorld(t *testing.T, rng *rand.Rand, vars ...string) *world {
	return &world{
		t: t, rng: rng, token: nexar.NewToken(),
		vars: append([]string{
			"NEXAR_HEARTBEAT_INTERVAL_SECS=0.3", fmt.Sprint("NEXAR_HEARTBEAT_TIMEOUT_SECS=", heartbeatTimeout.Seconds()),
			"NEXAR_FORM_TIMEOUT_SECS=60",
		}, vars...),
	}
}

// transports draws the transports of ranks.
func transports(rng *rand.Rand, from ...string) string {
	return "NEXAR_TRANSPORTS=" + from[rng.IntN(len(from))]
}

// startSeed starts a seed and waits until it listens.
func (w *world) startSeed(on launcher, args arguments) *process {
	w.t.Helper()
	p := start(w.t, on, "seed", fmt.Sprint("seed ", len(w.addrs)), args, "NEXAR_CLUSTER_TOKEN="+w.token)
	w.addrs = append(w.addrs, p.await(bound, "seed that listens", func(e event) bool { return e.Kind == evReady }).Addr)
	return p
}

// startLocal starts a seed and n ranks on loopback and waits until they make steps.
func (w *world) startLocal(n int, args arguments) *process {
	w.t.Helper()
	args.World, args.Listen = n, "127.0.0.1:0"
	seed := w.startSeed(nil, args)
	for range n {
		w.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	w.waitForSteps(1)
	return seed
}

// startRank starts another rank. It does not wait.
func (w *world) startRank(on launcher, args arguments, vars ...string) *process {
	w.t.Helper()
	all := append([]string{"NEXAR_CLUSTER_TOKEN=" + w.token, "NEXAR_SEEDS=" + strings.Join(w.addrs, ",")}, w.vars...)
	p := start(w.t, on, "rank", fmt.Sprint("rank ", len(w.ranks)), args, append(all, vars...)...)
	p.diagnose = w.diagnose
	w.ranks = append(w.ranks, p)
	return p
}

// diagnose returns the TCP sockets of all hosts. It makes all ranks print their goroutines and end.
func (w *world) diagnose() string {
	var b strings.Builder
	for i, h := range w.hosts {
		text, _ := h.Try("", "ss", "-tinoem")
		fmt.Fprintf(&b, "sockets of host %d:\n%s", i, text)
	}
	for _, p := range w.survivors() {
		p.signal(syscall.SIGQUIT)
	}
	return b.String()
}

// survivors returns the ranks that are not victims.
func (w *world) survivors() []*process {
	return slices.DeleteFunc(slices.Clone(w.ranks), (*process).isVictim)
}

// waitForSteps waits until every survivor has made the given number of steps beyond the most advanced
// one.
func (w *world) waitForSteps(steps int64) {
	w.t.Helper()
	w.waitForStepsWithin(bound, steps)
}

func (w *world) waitForStepsWithin(limit time.Duration, steps int64) {
	w.t.Helper()
	var most int64
	for _, p := range w.survivors() {
		if e, ok := p.lastEvent(evStep); ok {
			most = max(most, e.Step)
		}
	}
	for _, p := range w.survivors() {
		p.await(limit, fmt.Sprintf("progress beyond step %d", most+steps), func(e event) bool {
			w.check(p, e)
			return e.Kind == evStep && e.Step >= most+steps
		})
	}
}

// check fails the test for an event that no survivor may report.
func (w *world) check(p *process, e event) {
	w.t.Helper()
	switch e.Kind {
	case evWrong, evError, evOut:
		p.markVictim()
		w.t.Fatalf("%s: %s: %s\n%s", p.name, e.Kind, e.Text, p.log.Tail(4000))
	}
}

// waitForSize waits until every survivor is in a world of n.
func (w *world) waitForSize(n int) {
	w.t.Helper()
	for _, p := range w.survivors() {
		p.await(bound, fmt.Sprintf("world of %d", n), func(e event) bool {
			w.check(p, e)
			last, _ := p.lastEvent(evStep)
			return e.Kind == evStep && e.Size == n && last.Size == n
		})
	}
}

// finish stops the world and checks the survivors: all have the state that follows from right results
// and are in the last world; their errors name victims, ends of attacked links, or links of victims;
// and they leak nothing.
func (w *world) finish() {
	w.t.Helper()
	alive := w.survivors()
	for _, p := range alive {
		p.send("stop")
	}
	for _, p := range alive {
		done := p.await(bound, "end", func(e event) bool {
			w.check(p, e)
			return e.Kind == evDone
		})
		if want := stateAfter(done.Step); done.Sum != want.Sum {
			w.t.Errorf("%s: digest %#x after %d steps, want %#x", p.name, done.Sum, done.Step, want.Sum)
		}
		if e, ok := p.lastEvent(evEpoch); !ok || e.Size != len(alive) {
			w.t.Errorf("%s: the last world had %d ranks, want the %d that were not attacked", p.name, e.Size, len(alive))
		}
	}
	w.checkNamedNodes()
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

// checkNamedNodes checks the nodes that the errors of survivors name. An error about the loss of a link
// between two other ranks names both: one of them must be a victim.
func (w *world) checkNamedNodes() {
	w.t.Helper()
	type place struct {
		epoch uint64
		rank  int
	}
	victims, places := make(map[string]bool), make(map[place]bool)
	for _, p := range w.ranks {
		joined, ok := p.lastEvent(evJoined)
		if !ok || !p.mayBeNamed() {
			continue
		}
		victims[joined.Node] = true
		events, _, _ := p.eventsSoFar()
		for _, e := range events {
			if e.Kind == evEpoch {
				places[place{e.Epoch, e.Rank}] = true
			}
		}
	}
	reporter := regexp.MustCompile(`\(as rank (\d+) reports`)
	for _, p := range w.survivors() {
		events, _, _ := p.eventsSoFar()
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

// waitForRemoval waits until a victim has an error because it was removed or cannot continue.
func (w *world) waitForRemoval(p *process) {
	w.t.Helper()
	p.await(bound, "end of the victim's membership", func(e event) bool {
		return e.Kind == evOut || e.Kind == evError
	})
}

// settleLink waits until the world has dealt with an attacked link: either one end was removed, which
// settleLink marks as a victim, or the ends have replaced the link and every rank has completed a step
// since its last failure.
func (w *world) settleLink(ends ...*process) {
	w.t.Helper()
	for _, p := range ends {
		p.markSuspect()
	}
	before := len(w.survivors())
	time.Sleep(heartbeatTimeout + 2*time.Second)
	since := time.Now()
	for deadline := time.Now().Add(bound); ; {
		sizes, recovered := make(map[int]bool), true
		for _, p := range w.survivors() {
			if e, ok := p.lastEvent(evOut); ok && slices.Contains(ends, p) {
				w.t.Logf("%s was removed from the world: %s", p.name, e.Text)
				p.markVictim()
				continue
			}
			e, _ := p.lastEvent(evStep, evPeer)
			recovered = recovered && e.Kind == evStep && e.At.After(since)
			sizes[e.Size] = true
		}
		if recovered && len(sizes) == 1 && sizes[len(w.survivors())] {
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the ranks have not agreed on a world within %v: sizes %v, %d ranks alive", bound, sizes, len(w.survivors()))
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := before - len(w.survivors()); n > 1 {
		w.t.Errorf("%d ranks were removed, want at most one end of the link", n)
	}
}
