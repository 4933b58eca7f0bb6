package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
)

// startLocalSeed starts a seed for n nodes in this process, by default on loopback.
func startLocalSeed(t testing.TB, n int, cfg nexar.SeedConfig) *nexar.Seed {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	cfg.World = n
	s, err := nexar.StartSeed(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the seed: %v", err)
		}
	})
	return s
}

// nodeConfig returns the configuration of a node in this process, with timeouts as long as
// those of workers (patientVars).
func nodeConfig(s *nexar.Seed, token string) nexar.Config {
	return nexar.Config{
		Seeds: []string{s.Addr()}, Token: token, Listen: "127.0.0.1:0", FormTimeout: 2 * time.Minute,
		HeartbeatTimeout: 10 * slowMax, RecoveryTimeout: 10 * slowMax,
	}
}

// form forms a world of n nodes in this process, each with its own sockets, and returns them
// in the order of their ranks.
func form(t testing.TB, n int, change func(cfg *nexar.Config)) []*nexar.Node {
	t.Helper()
	token := nexar.NewToken()
	s := startLocalSeed(t, n, nexar.SeedConfig{Token: token})
	cfgs := make([]nexar.Config, n)
	for i := range cfgs {
		cfgs[i] = nodeConfig(s, token)
		if change != nil {
			change(&cfgs[i])
		}
	}
	nodes, errs := joinAll(t, cfgs)
	for i, err := range errs {
		if err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	slices.SortFunc(nodes, func(a, b *nexar.Node) int { return a.World().Rank() - b.World().Rank() })
	return nodes
}

// joinAll joins a node for each configuration, all at the same time, and closes the nodes at
// the end of the test.
func joinAll(t testing.TB, cfgs []nexar.Config) ([]*nexar.Node, []error) {
	nodes, errs := make([]*nexar.Node, len(cfgs)), make([]error, len(cfgs))
	var joining sync.WaitGroup
	for i, cfg := range cfgs {
		joining.Go(func() { nodes[i], errs[i] = nexar.Join(context.Background(), cfg) })
	}
	joining.Wait()
	t.Cleanup(func() { closeAll(t, nodes) })
	return nodes, errs
}

func closeAll(t testing.TB, nodes []*nexar.Node) {
	var closing sync.WaitGroup
	for _, n := range nodes {
		if n != nil {
			closing.Go(func() {
				if err := n.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
	}
	closing.Wait()
}

// onEachNode calls f for the worlds of all nodes at the same time and returns the errors.
func onEachNode(nodes []*nexar.Node, f func(c *nexar.Comm) error) []error {
	errs := make([]error, len(nodes))
	var running sync.WaitGroup
	for i, n := range nodes {
		running.Go(func() { errs[i] = f(n.World()) })
	}
	running.Wait()
	return errs
}

// mustBeNil fails the test for each error; the errors are those of the ranks in order.
func mustBeNil(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// logTo returns a logger and the buffer with its output. The buffer is printed if the test fails.
func logTo(t testing.TB, name string) (*slog.Logger, *testlog.Buffer) {
	b := new(testlog.Buffer)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, b.Tail(6000))
		}
	})
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})), b
}

// missingTexts returns the texts that s does not contain.
func missingTexts(s fmt.Stringer, texts ...string) (missing []string) {
	all := s.String()
	for _, text := range texts {
		if !strings.Contains(all, text) {
			missing = append(missing, text)
		}
	}
	return missing
}

// mustContain fails the test unless the error contains all of the texts.
func mustContain(t testing.TB, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that contains %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not contain %q: %v", text, err)
		}
	}
}
