package kubernetes

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testhost"
)

// mean returns the line that a rank of examples/allreduce prints in a world of four.
func mean(rank int) string { return fmt.Sprintf("rank %d of 4: the mean gradient is 1.5", rank) }

// An unchanged program in the pods of an indexed Job finds its world by the name of pod 0: it waits for the
// name and for an answer, and tries all addresses.
func TestNames(t *testing.T) {
	t.Parallel()
	pods := load(t, "overlays/job").ranks()
	nowhere := netip.MustParseAddr("10.77.0.99")
	run := func(name string, have testhost.Family, publish func(t *testing.T, c *cluster)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 4, have)
			var running []*process
			for i, p := range pods {
				running = append(running, c.start(p, c.hosts[i], "allreduce"))
			}
			publish(t, c)
			for rank, p := range running {
				p.succeeds(t, mean(rank))
			}
		})
	}
	run("a name that does not exist yet", testhost.IPv4|testhost.IPv6, func(t *testing.T, c *cluster) {
		waitFor(t, "three pods ask for the name of pod 0 in vain, and again", func() bool { return c.queries(pods[0].host()) >= 12 }, func() string { return fmt.Sprint(c.queries(pods[0].host()), " queries") })
		c.publish(pods[0], c.hosts[0].V4, c.hosts[0].V6)
	})
	run("a name server that answers late", testhost.IPv4, func(t *testing.T, c *cluster) {
		c.set(pods[0].host(), record{addrs: []netip.Addr{c.hosts[0].V4}, delay: 2 * time.Second})
	})
	run("several addresses, one of them dead", testhost.IPv4, func(t *testing.T, c *cluster) {
		c.publish(pods[0], nowhere, c.hosts[0].V4)
	})
	run("IPv6 alone", testhost.IPv6, func(t *testing.T, c *cluster) {
		c.publish(pods[0], c.hosts[0].V6)
	})
	run("a name of another host at first", testhost.IPv4, func(t *testing.T, c *cluster) {
		c.publish(pods[0], nowhere)
		waitFor(t, "three pods have the first address", func() bool { return c.queries(pods[0].host()) >= 6 }, func() string { return "" })
		c.publish(pods[0], c.hosts[0].V4)
	})
}

// The world of each overlay forms, also without one of three seeds.
func TestWorldsForm(t *testing.T) {
	t.Parallel()
	for _, overlay := range overlays(t) {
		t.Run(overlay, func(t *testing.T) {
			t.Parallel()
			o := load(t, overlay)
			ranks, seeds := o.ranks(), o.seeds()
			c := newCluster(t, len(ranks)+len(seeds), testhost.IPv4)
			var running []*process
			for i, p := range ranks {
				running = append(running, c.start(p, c.hosts[i], "allreduce"))
				c.publish(p, c.hosts[i].V4)
			}
			for i, p := range seeds[:min(2, len(seeds))] {
				c.start(p, c.hosts[len(ranks)+i], "nexar", p.args(t)...)
				c.publish(p, c.hosts[len(ranks)+i].V4)
			}
			for rank, p := range running {
				if len(seeds) > 0 && mustEnv(t, ranks[rank])["NEXAR_RANK"] == "" {
					p.succeeds(t, "of 4: the mean gradient is 1.5") // The seeds choose the ranks.
				} else {
					p.succeeds(t, mean(rank))
				}
			}
		})
	}
}

// Without pod 0, the error of the others says how often and how long they have looked for its name, once for all of its ports.
func TestFirstPodNeverAppears(t *testing.T) {
	t.Parallel()
	pods := load(t, "overlays/job").ranks()
	c := newCluster(t, 1, testhost.IPv4)
	p := pods[1]
	p.injected["NEXAR_FORM_TIMEOUT_SECS"] = "5"
	run := c.start(p, c.hosts[0], "allreduce")
	out := run.wait(t)
	want := regexp.MustCompile(`the world did not form within 5s: no seed could be reached in \d+ attempts; is one running\? lookup ` + pods[0].host() + ` on [0-9.:]+: no such host\n`)
	if run.err == nil || !want.MatchString(out) {
		t.Errorf("%v, want the error %v:\n%s", run.err, want, out)
	}
}

// A token that every user may read is refused, with its mode and the remedy.
func TestPublicToken(t *testing.T) {
	t.Parallel()
	p := load(t, "overlays/job").ranks()[0]
	_, volume := p.tokenFile()
	*volume.DefaultMode = 0o444
	c := newCluster(t, 1, testhost.IPv4)
	run := c.start(p, c.hosts[0], "allreduce")
	if out := run.wait(t); run.err == nil || !strings.Contains(out, "it has mode 0444") {
		t.Errorf("%v, want that the mode 0444 is refused:\n%s", run.err, out)
	}
}

// Pod 0 moves to another host before the world has formed: the ranks that had found its seed find the new one.
func TestFirstPodMoves(t *testing.T) {
	t.Parallel()
	pods := load(t, "overlays/job").ranks()
	c := newCluster(t, 5, testhost.IPv4)
	old := c.start(pods[0], c.hosts[4], "allreduce")
	c.publish(pods[0], c.hosts[4].V4)
	running := make([]*process, 4)
	for rank := 1; rank < 3; rank++ {
		running[rank] = c.start(pods[rank], c.hosts[rank], "allreduce")
	}
	old.prints(t, "3 of 4 have joined")
	old.kill()
	c.publish(pods[0], c.hosts[0].V4)
	running[0] = c.start(pods[0], c.hosts[0], "allreduce")
	running[3] = c.start(pods[3], c.hosts[3], "allreduce")
	for rank, p := range running {
		p.succeeds(t, mean(rank))
	}
}

// A pod with the index of one that still runs, on a host that is cut off from Kubernetes, takes its place. The pod before ends
// with an error that names its successor.
func TestPodWithTheSameIndex(t *testing.T) {
	t.Parallel()
	pods := load(t, "overlays/job").ranks()
	c := newCluster(t, 5, testhost.IPv4)
	c.publish(pods[0], c.hosts[0].V4)
	running := []*process{c.start(pods[0], c.hosts[0], "allreduce"), nil, nil, c.start(pods[3], c.hosts[3], "allreduce")}
	old := c.start(pods[2], c.hosts[4], "allreduce")
	running[0].prints(t, "3 of 4 have joined")
	running[2] = c.start(pods[2], c.hosts[2], "allreduce")
	if out := old.wait(t); old.err == nil || !strings.Contains(out, "2 was taken over by "+c.hosts[2].V4.String()) || !strings.Contains(out, "the launcher has started 2/train-2.nexar.ml.svc.cluster.local on another host") {
		t.Errorf("the pod before: %v, want an error that names %v:\n%s", old.err, c.hosts[2].V4, out)
	}
	running[1] = c.start(pods[1], c.hosts[1], "allreduce")
	for rank, p := range running {
		p.succeeds(t, mean(rank))
	}
}

// An elastic world goes on when a seed and a rank end. The rank starts again in its pod, and takes part from the next step on.
func TestElasticPods(t *testing.T) {
	t.Parallel()
	o := load(t, "overlays/jobset-elastic")
	ranks, seeds := o.ranks(), o.seeds()
	c := newCluster(t, len(ranks)+len(seeds), testhost.IPv4)
	var servers, running []*process
	for i, p := range seeds {
		h := c.hosts[len(ranks)+i]
		servers = append(servers, c.start(p, h, "nexar", p.args(t)...))
		c.publish(p, h.V4)
	}
	train := func(i int) *process { return c.start(ranks[i], c.hosts[i], "elastic", "--epochs=3", "--pause=30ms") }
	for i := range ranks {
		running = append(running, train(i))
	}
	for _, p := range running {
		p.prints(t, "of 4, process")
	}
	servers[0].kill()
	running[1].kill()
	running[0].prints(t, "of 3, process")
	running[1] = train(1)
	for _, p := range running {
		p.succeeds(t, "of 4, process")
	}
	out := ""
	for _, p := range running {
		out += p.output.String()
	}
	if !strings.Contains(out, "4 ranks have finished") {
		t.Errorf("no rank has printed that 4 ranks have finished:\n%s", out)
	}
}

// A pod of an elastic world gets a successor on another host while it lives. It ends with an error that names the successor, which takes part
// from the next step on. Its container cannot take the place back.
func TestPodMovesWhileItLives(t *testing.T) {
	t.Parallel()
	o := load(t, "overlays/jobset-elastic")
	ranks, seeds := o.ranks(), o.seeds()
	c := newCluster(t, len(ranks)+len(seeds)+1, testhost.IPv4)
	for i, p := range seeds {
		h := c.hosts[len(ranks)+i]
		c.start(p, h, "nexar", p.args(t)...)
		c.publish(p, h.V4)
	}
	train := func(i, host int) *process {
		return c.start(ranks[i], c.hosts[host], "elastic", "--epochs=3", "--pause=30ms")
	}
	var running []*process
	for i := range ranks {
		running = append(running, train(i, i))
	}
	for _, p := range running {
		p.prints(t, "of 4, process")
	}
	old, other := running[1], len(ranks)+len(seeds)
	running[1] = train(1, other)
	const place = " has taken its place 1/train-ranks-0-1.nexar.ml.svc.cluster.local on another host"
	if out := old.wait(t); old.err == nil || !strings.Contains(out, c.hosts[other].V4.String()+":7947 (train-ranks-0-1:1)"+place) {
		t.Errorf("the pod before: %v, want an error that names %v:\n%s", old.err, c.hosts[other].V4, out)
	}
	again := train(1, 1)
	if out := again.wait(t); again.err == nil || !strings.Contains(out, "1/train-ranks-0-1.nexar.ml.svc.cluster.local runs on another host now") {
		t.Errorf("the pod before, started again: %v, want that it is refused:\n%s", again.err, out)
	}
	for _, p := range running {
		p.succeeds(t, "of 4, process")
	}
}

// When pod 0 ends with the seed in its process, the other ranks end with an error. Their containers are started again, and a new world forms.
func TestFirstPodEnds(t *testing.T) {
	t.Parallel()
	pods := load(t, "overlays/job").ranks()
	c := newCluster(t, 4, testhost.IPv4)
	start := func(pause string) (running []*process) {
		for i, p := range pods {
			running = append(running, c.start(p, c.hosts[i], "elastic", "--epochs=1", "--pause="+pause))
			c.publish(p, c.hosts[i].V4)
		}
		return running
	}
	running := start("1s")
	for _, p := range running {
		p.prints(t, "of 4, process")
	}
	running[0].kill()
	for _, p := range running[1:] {
		if out := p.wait(t); p.err == nil || !strings.Contains(out, "rank 0 (node ") || !strings.Contains(out, nexar.ErrNoQuorum.Error()) {
			t.Errorf("%s: %v, want an error about rank 0 and the seed:\n%s", p.name, p.err, out)
		}
	}
	for _, p := range start("0s") {
		p.succeeds(t, "of 4, process")
	}
}
