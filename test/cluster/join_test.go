package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// blackHole is the address of a socket that never answers.
func blackHole(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// A node that reaches no seed gives up when its time is up, and says which
// addresses it has tried.
func TestSeedUnreachable(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	silent := blackHole(t)
	for name, seeds := range map[string][]string{
		"nobody there": {"127.0.0.1:1"},
		"no answer":    {silent},
		"several":      {"127.0.0.1:1", silent},
	} {
		cfg := nexar.Config{Seeds: seeds, Listen: "127.0.0.1:0", Token: nexar.NewToken()}
		t.Run(name+"/FormTimeout", func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.FormTimeout = timeout
			began := time.Now()
			_, err := nexar.Join(t.Context(), cfg)
			mustSay(t, err, append([]string{"nexar: join:"}, seeds...)...)
			mustTake(t, time.Since(began), timeout)
		})
		t.Run(name+"/deadline", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			began := time.Now()
			_, err := nexar.Join(ctx, cfg)
			mustSay(t, err, seeds...)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error is no context.DeadlineExceeded: %v", err)
			}
			mustTake(t, time.Since(began), timeout)
		})
		t.Run(name+"/cancel", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("interrupted")
			time.AfterFunc(timeout, func() { cancel(why) })
			began := time.Now()
			_, err := nexar.Join(ctx, cfg)
			if !errors.Is(err, why) {
				t.Errorf("error %v, want %v", err, why)
			}
			mustTake(t, time.Since(began), timeout)
		})
	}
}

// mustTake allows for a busy machine.
func mustTake(t *testing.T, took, want time.Duration) {
	t.Helper()
	if took < want-10*time.Millisecond || took > want+slowMax {
		t.Errorf("took %v, want %v", took, want)
	}
}

// If a world does not fill, the errors of the seed and of all nodes that have joined tell their number
// and addresses.
func TestWorldNeverFills(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	s := seedHere(t, 4, nexar.SeedConfig{Token: token, FormTimeout: 10 * time.Second})
	cfgs := []nexar.Config{nodeConfig(s, token), nodeConfig(s, token)}
	texts := []string{"2 of 4 nodes joined", "missing 2"}
	for i := range cfgs {
		cfgs[i].Listen = freePort(t)
		texts = append(texts, cfgs[i].Listen, fmt.Sprint(":", os.Getpid()))
	}
	_, errs := joinAll(t, cfgs)
	for _, err := range append(errs, s.Wait(t.Context())) {
		mustSay(t, err, texts...)
	}
}

// A node that times out before the seed reports the state of the formation.
func TestNodeGivesUpFirst(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	s := seedHere(t, 4, nexar.SeedConfig{Token: token})
	cfg := nodeConfig(s, token)
	cfg.FormTimeout = 6 * time.Second
	_, err := nexar.Join(t.Context(), cfg)
	mustSay(t, err, "1 of 4 nodes had joined", s.Addr())
}

func TestNobodyComes(t *testing.T) {
	t.Parallel()
	s := seedHere(t, 4, nexar.SeedConfig{Token: nexar.NewToken(), FormTimeout: 200 * time.Millisecond})
	mustSay(t, s.Wait(t.Context()), "0 of 4 nodes joined")
	<-s.Done()
}

// freePort is an address that nobody listens at just now, by UDP or TCP.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", c.LocalAddr().String())
		c.Close()
		if err == nil {
			l.Close()
			return c.LocalAddr().String()
		}
	}
}

// A rank that cannot be given is the problem of the node that wants it, and
// the world forms without that node.
func TestWantedRanks(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	log, lines := logTo(t, "seed")
	s := seedHere(t, 3, nexar.SeedConfig{Token: token, Log: log})
	wants := func(rank int) nexar.Config {
		cfg := nodeConfig(s, token)
		cfg.Rank = &rank
		return cfg
	}
	first := make(chan error, 1)
	var nodes [3]*nexar.Node
	go func() {
		var err error
		nodes[2], err = nexar.Join(t.Context(), wants(2))
		first <- err
	}()
	waitFor(t, func() bool { return strings.Contains(lines.String(), "joined=1") })

	_, err := nexar.Join(t.Context(), wants(2))
	mustSay(t, err, "rank", "2 is already taken by", s.Addr())
	_, err = nexar.Join(t.Context(), wants(3))
	mustSay(t, err, "3 is not below the world's size of 3")
	if missing := says(lines, "2 is already taken", "3 is not below the world's size"); missing != nil {
		t.Errorf("the log of the seed does not say %q", missing)
	}

	rest, errs := joinAll(t, []nexar.Config{wants(0), nodeConfig(s, token)})
	fine(t, append(errs, <-first))
	t.Cleanup(func() { closeAll(t, nodes[2:]) })
	for i, n := range []*nexar.Node{rest[0], rest[1], nodes[2]} {
		if got := n.World().Rank(); got != i {
			t.Errorf("rank %d, want %d", got, i)
		}
	}
	_, err = nexar.Join(t.Context(), nodeConfig(s, token))
	mustSay(t, err, "the world of 3 has formed")
}

// waitFor waits until something is so.
func waitFor(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(slowMax); !so(); {
		if time.Now().After(end) {
			t.Fatal("it has not become so")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A process that dies while others are still awaited gives its place free,
// and its rank.
func TestReplaced(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	log, lines := logTo(t, "seed")
	s := seedHere(t, 3, nexar.SeedConfig{Token: c.token, Log: log})
	hire := func(name string, rank int) *worker {
		return c.hire(nil, name, "NEXAR_SEEDS="+s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank))
	}
	joined := func(n int) func() bool {
		return func() bool { return strings.Contains(lines.String(), fmt.Sprint("joined=", n)) }
	}
	zero := hire("rank 0", 0)
	first := zero.start(order{Do: "join"})
	waitFor(t, joined(1))
	victim := hire("the one that dies", 1)
	victim.start(order{Do: "join"})
	waitFor(t, joined(2))
	victim.kill(os.Kill)
	waitFor(t, func() bool { return strings.Contains(lines.String(), "node is gone") })

	team := []*worker{hire("its replacement", 1), hire("rank 2", 2)}
	ok(t, append(all(team, order{Do: "join"}), zero.await(first)))
	ok(t, all(append(team, zero), order{Do: "check"}))
}

// A node that dies after all have joined, but before all are linked, ends the formation at once; all
// errors name it.
func TestDiesWhileConnecting(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	log, lines := logTo(t, "seed")
	s := seedHere(t, 3, nexar.SeedConfig{Token: c.token, Log: log})
	nowhere := blackHole(t) // keeps the others busy
	var team []*worker
	for rank := range 3 {
		// Through shared memory they would reach each other at once.
		vars := []string{"NEXAR_SEEDS=" + s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank), "NEXAR_TRANSPORTS=quic"}
		if rank == 0 {
			vars = append(vars, "NEXAR_ADVERTISE="+nowhere)
		}
		team = append(team, c.hire(nil, fmt.Sprint("rank ", rank), vars...))
	}
	var joining []<-chan report
	for _, w := range team {
		joining = append(joining, w.start(order{Do: "join"}))
	}
	waitFor(t, func() bool { return strings.Contains(lines.String(), "world is full") })
	killed := team[2].kill(os.Kill)
	for rank, r := range await(team[:2], joining[:2]) {
		if r.Failure == nil || !strings.Contains(r.Failure.Text, "rank 2 127.0.0.1:") || !strings.Contains(r.Failure.Text, "went away before the world was formed") {
			t.Errorf("rank %d: %v, want that rank 2 has gone", rank, r.Failure)
		}
		if took := r.At.Sub(killed); took > slowMax {
			t.Errorf("rank %d was told after %v", rank, took)
		}
	}
}

// An unreachable address is detected before the timeout, so that all errors can name both ends.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	s := seedHere(t, 3, nexar.SeedConfig{Token: token})
	cfgs := make([]nexar.Config, 3)
	for rank := range cfgs {
		cfgs[rank] = nodeConfig(s, token)
		cfgs[rank].Rank = &rank
		cfgs[rank].FormTimeout = 20 * time.Second
		cfgs[rank].Transports = []string{"tcp", "quic"} // In memory there are no addresses.
	}
	cfgs[0].Advertise = "127.0.0.1:1"
	_, errs := joinAll(t, cfgs)
	for _, err := range append(errs, s.Wait(t.Context())) {
		mustSay(t, err, "cannot reach rank 0 127.0.0.1:1 ", "refused")
		if err != nil && !strings.Contains(err.Error(), "rank 1 127.0.0.1:") && !strings.Contains(err.Error(), "rank 2 127.0.0.1:") {
			t.Errorf("the error does not say who cannot: %v", err)
		}
	}
}
