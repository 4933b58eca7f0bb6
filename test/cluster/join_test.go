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
	"github.com/nexar-go/nexar/internal/testhost"
)

// blackHole returns the address of a UDP socket that never answers.
func blackHole(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.LocalAddr().String()
}

// A node that reaches no seed returns an error at its timeout. The error names the addresses.
func TestSeedUnreachable(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	silent := blackHole(t)
	for name, seeds := range map[string][]string{
		"closed port": {"127.0.0.1:1"},
		"no answer":   {silent},
		"several":     {"127.0.0.1:1", silent},
	} {
		cfg := nexar.Config{Seeds: seeds, Listen: "127.0.0.1:0", Token: nexar.NewToken()}
		t.Run(name+"/FormTimeout", func(t *testing.T) {
			t.Parallel()
			cfg := cfg
			cfg.FormTimeout = timeout
			began := time.Now()
			_, err := nexar.Join(t.Context(), cfg)
			mustContain(t, err, append([]string{"nexar: join:"}, seeds...)...)
			mustTake(t, time.Since(began), timeout)
		})
		t.Run(name+"/deadline", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			began := time.Now()
			_, err := nexar.Join(ctx, cfg)
			mustContain(t, err, seeds...)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the error does not wrap context.DeadlineExceeded: %v", err)
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

// mustTake checks a duration, with an allowance for a busy machine.
func mustTake(t *testing.T, took, want time.Duration) {
	t.Helper()
	if took < want-10*time.Millisecond || took > want+slowMax {
		t.Errorf("took %v, want %v", took, want)
	}
}

// If nodes are missing, the errors of the seed and of all nodes that have joined contain their
// number and addresses.
func TestWorldNeverFills(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	s := startLocalSeed(t, 4, nexar.SeedConfig{Token: token, FormTimeout: 10 * time.Second})
	cfgs := []nexar.Config{nodeConfig(s, token), nodeConfig(s, token)}
	texts := []string{"2 of 4 nodes joined", "missing 2"}
	for i := range cfgs {
		cfgs[i].Listen = testhost.FreePort(t)
		texts = append(texts, cfgs[i].Listen, fmt.Sprint(":", os.Getpid()))
	}
	_, errs := joinAll(t, cfgs)
	for _, err := range append(errs, s.Wait(t.Context())) {
		mustContain(t, err, texts...)
	}
}

// A node that times out before the seed reports the state of the formation.
func TestNodeGivesUpFirst(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	s := startLocalSeed(t, 4, nexar.SeedConfig{Token: token})
	cfg := nodeConfig(s, token)
	cfg.FormTimeout = 6 * time.Second
	_, err := nexar.Join(t.Context(), cfg)
	mustContain(t, err, "1 of 4 nodes joined", s.Addr())
}

func TestNoNodeJoins(t *testing.T) {
	t.Parallel()
	s := startLocalSeed(t, 4, nexar.SeedConfig{Token: nexar.NewToken(), FormTimeout: 200 * time.Millisecond})
	mustContain(t, s.Wait(t.Context()), "0 of 4 nodes joined")
	<-s.Done()
}

// A node that requests an impossible rank gets an error, and the world forms without it.
func TestRequestedRanks(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	log, lines := logTo(t, "seed")
	s := startLocalSeed(t, 3, nexar.SeedConfig{Token: token, Log: log})
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
	mustContain(t, err, "rank", "2 is already taken by", s.Addr())
	_, err = nexar.Join(t.Context(), wants(3))
	mustContain(t, err, "3 is not below the world's size of 3")
	if missing := missingTexts(lines, "2 is already taken", "3 is not below the world's size"); missing != nil {
		t.Errorf("the log of the seed does not contain %q", missing)
	}

	rest, errs := joinAll(t, []nexar.Config{wants(0), nodeConfig(s, token)})
	mustBeNil(t, append(errs, <-first))
	t.Cleanup(func() { closeAll(t, nodes[2:]) })
	for i, n := range []*nexar.Node{rest[0], rest[1], nodes[2]} {
		if got := n.World().Rank(); got != i {
			t.Errorf("rank %d, want %d", got, i)
		}
	}
	_, err = nexar.Join(t.Context(), nodeConfig(s, token))
	mustContain(t, err, "the world of 3 has formed")
}

// waitFor waits until condition is true.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(slowMax); !condition(); {
		if time.Now().After(end) {
			t.Fatalf("the condition is not true after %v", slowMax)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// When a node dies during the formation, its rank is free for another node.
func TestDeadNodeIsReplaced(t *testing.T) {
	t.Parallel()
	c := newWorkerSet(t)
	log, lines := logTo(t, "seed")
	s := startLocalSeed(t, 3, nexar.SeedConfig{Token: c.token, Log: log})
	start := func(name string, rank int) *worker {
		return c.start(nil, name, "NEXAR_SEEDS="+s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank))
	}
	joined := func(n int) func() bool {
		return func() bool { return strings.Contains(lines.String(), fmt.Sprint("joined=", n)) }
	}
	zero := start("rank 0", 0)
	first := zero.start(command{Do: "join"})
	waitFor(t, joined(1))
	victim := start("victim", 1)
	victim.start(command{Do: "join"})
	waitFor(t, joined(2))
	victim.kill(os.Kill)
	waitFor(t, func() bool { return strings.Contains(lines.String(), "node is gone") })

	workers := []*worker{start("replacement", 1), start("rank 2", 2)}
	mustSucceed(t, append(runAll(workers, command{Do: "join"}), zero.await(first)))
	mustSucceed(t, runAll(append(workers, zero), command{Do: "check"}))
}

// A node that dies after all have joined and before all are linked ends the formation at once. All
// errors name it.
func TestDiesWhileConnecting(t *testing.T) {
	t.Parallel()
	c := newWorkerSet(t)
	log, lines := logTo(t, "seed")
	s := startLocalSeed(t, 3, nexar.SeedConfig{Token: c.token, Log: log})
	nowhere := blackHole(t) // delays the links to rank 0
	var workers []*worker
	for rank := range 3 {
		// Over shared memory the ranks would be linked at once.
		vars := []string{"NEXAR_SEEDS=" + s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank), "NEXAR_TRANSPORTS=quic"}
		if rank == 0 {
			vars = append(vars, "NEXAR_ADVERTISE="+nowhere, "NEXAR_ADVERTISE_UNCHECKED=1")
		}
		workers = append(workers, c.start(nil, fmt.Sprint("rank ", rank), vars...))
	}
	var joining []<-chan result
	for _, w := range workers {
		joining = append(joining, w.start(command{Do: "join"}))
	}
	waitFor(t, func() bool { return strings.Contains(lines.String(), "world is full") })
	killed := workers[2].kill(os.Kill)
	for rank, r := range awaitAll(workers[:2], joining[:2]) {
		if r.Failure == nil || !strings.Contains(r.Failure.Text, "rank 2 127.0.0.1:") || !strings.Contains(r.Failure.Text, "went away before the world was formed") {
			t.Errorf("rank %d: %v, want an error that names rank 2", rank, r.Failure)
		}
		if took := r.At.Sub(killed); took > slowMax {
			t.Errorf("rank %d had its error after %v", rank, took)
		}
	}
}

// An unreachable address is reported before the formation times out, so that all errors name both
// ends.
func TestUnreachableAddress(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	s := startLocalSeed(t, 3, nexar.SeedConfig{Token: token})
	cfgs := make([]nexar.Config, 3)
	for rank := range cfgs {
		cfgs[rank] = nodeConfig(s, token)
		cfgs[rank].Rank = &rank
		cfgs[rank].FormTimeout = 20 * time.Second
		cfgs[rank].Transports = []string{"tcp", "quic"} // shared memory has no addresses
	}
	cfgs[0].Advertise, cfgs[0].AdvertiseUnchecked = "127.0.0.1:1", true
	_, errs := joinAll(t, cfgs)
	for _, err := range append(errs, s.Wait(t.Context())) {
		mustContain(t, err, "cannot reach rank 0 127.0.0.1:1 ", "refused")
		if err != nil && !strings.Contains(err.Error(), "rank 1 127.0.0.1:") && !strings.Contains(err.Error(), "rank 2 127.0.0.1:") {
			t.Errorf("the error does not name the rank that cannot connect: %v", err)
		}
	}
}
