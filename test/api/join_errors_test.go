package api

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// oneSeed starts a seed of a world of two nodes, and returns the Config of a node.
func oneSeed(t *testing.T, change func(cfg *nexar.SeedConfig)) (*nexar.Seed, nexar.Config) {
	t.Helper()
	cfg := nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: nexar.NewToken(), FormTimeout: time.Minute}
	change(&cfg)
	seed, err := nexar.StartSeed(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seed.Close() })
	return seed, nexar.Config{Seeds: []string{seed.Addr()}, Token: cfg.Token, Listen: "127.0.0.1:0", FormTimeout: time.Minute}
}

// joinFails joins with cfg and returns the error.
func joinFails(t *testing.T, cfg nexar.Config) error {
	t.Helper()
	n, err := nexar.Join(t.Context(), cfg)
	if err == nil {
		n.Close()
		t.Fatal("Join succeeded, want an error")
	}
	return err
}

func TestJoinErrorToken(t *testing.T) {
	_, cfg := oneSeed(t, func(*nexar.SeedConfig) {})
	for _, token := range []string{"", nexar.NewToken()} {
		cfg.Token = token
		if err := joinFails(t, cfg); !errors.Is(err, nexar.ErrToken) || errors.Is(err, nexar.ErrNotFormed) || !strings.Contains(err.Error(), "token") {
			t.Errorf("error %v, want ErrToken", err)
		}
		if _, err := nexar.QueryCluster(t.Context(), cfg); !errors.Is(err, nexar.ErrToken) {
			t.Errorf("QueryCluster: error %v, want ErrToken", err)
		}
	}
}

func TestJoinErrorRankTaken(t *testing.T) {
	_, cfg := oneSeed(t, func(*nexar.SeedConfig) {})
	rank := 7
	cfg.Rank = &rank
	if err := joinFails(t, cfg); !errors.Is(err, nexar.ErrRankTaken) {
		t.Errorf("rank 7 of 2: error %v, want ErrRankTaken", err)
	}
	rank = 0
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			n, err := nexar.Join(t.Context(), cfg)
			if err == nil {
				defer n.Close()
			}
			errs <- err
		}()
	}
	if err := <-errs; !errors.Is(err, nexar.ErrRankTaken) || !strings.Contains(err.Error(), "0") {
		t.Errorf("rank 0 twice: error %v, want ErrRankTaken", err)
	}
	rank1 := 1
	cfg.Rank = &rank1
	n, err := nexar.Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	if err := <-errs; err != nil {
		t.Error(err)
	}
}

// eachLimit calls try with longer and longer timeouts until it returns nil: a loaded machine may
// need long to join a node. It returns the last error.
func eachLimit(try func(limit time.Duration) error) (err error) {
	for limit := 500 * time.Millisecond; limit < time.Minute; limit *= 4 {
		if err = try(limit); err == nil {
			break
		}
	}
	return err
}

// TestJoinErrorNotFormed: the errors of the node and of the seed have the number of joined nodes
// and their addresses.
func TestJoinErrorNotFormed(t *testing.T) {
	err := eachLimit(func(limit time.Duration) error {
		seed, cfg := oneSeed(t, func(cfg *nexar.SeedConfig) { cfg.FormTimeout = limit })
		for name, err := range map[string]error{"join": joinFails(t, cfg), "seed": seed.Wait(t.Context())} {
			if !errors.Is(err, nexar.ErrNotFormed) || !strings.Contains(err.Error(), "the world did not form: 1 of 2 nodes joined") || !strings.Contains(err.Error(), "127.0.0.1:") {
				return fmt.Errorf("%s: error %w, want ErrNotFormed that names the node", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	_, cfg := oneSeed(t, func(*nexar.SeedConfig) {})
	cfg.FormTimeout = 300 * time.Millisecond
	if err := joinFails(t, cfg); !errors.Is(err, nexar.ErrNotFormed) || !strings.Contains(err.Error(), "the world did not form within 300ms") {
		t.Errorf("error %v, want ErrNotFormed after the timeout of the node", err)
	}
}

// TestNotFormedErrorFields: a NotFormedError has the joined nodes, whether the timeout of the seed or
// of the node ends first.
func TestNotFormedErrorFields(t *testing.T) {
	for name, limit := range map[string]func(*nexar.SeedConfig, *nexar.Config, time.Duration){
		"timeout of the seed": func(s *nexar.SeedConfig, _ *nexar.Config, limit time.Duration) { s.FormTimeout = limit },
		"timeout of the node": func(_ *nexar.SeedConfig, c *nexar.Config, limit time.Duration) { c.FormTimeout = limit },
	} {
		t.Run(name, func(t *testing.T) {
			err := eachLimit(func(d time.Duration) error {
				return joinsAlone(t, func(s *nexar.SeedConfig, c *nexar.Config) { limit(s, c, d) })
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	err := joinFails(t, nexar.Config{Seeds: []string{"127.0.0.1:1"}, Listen: "127.0.0.1:0", FormTimeout: 100 * time.Millisecond})
	if e, ok := errors.AsType[*nexar.NotFormedError](err); !ok || e.Joined != 0 || e.World != 0 || e.Nodes != nil {
		t.Errorf("no seed: error %#v (%v), want a NotFormedError without nodes", e, err)
	}
}

// joinsAlone joins rank 1 of two with timeouts, alone, and checks the errors of the node and of the seed.
func joinsAlone(t *testing.T, limit func(*nexar.SeedConfig, *nexar.Config)) error {
	var node nexar.Config
	seed, cfg := oneSeed(t, func(cfg *nexar.SeedConfig) { limit(cfg, &node) })
	cfg.FormTimeout = cmp.Or(node.FormTimeout, cfg.FormTimeout)
	rank := 1
	cfg.Rank = &rank
	errs := []error{joinFails(t, cfg)}
	if node.FormTimeout == 0 {
		errs = append(errs, seed.Wait(t.Context()))
	}
	for _, err := range errs {
		e, ok := errors.AsType[*nexar.NotFormedError](err)
		if !ok || e.Joined != 1 || e.World != 2 || len(e.Nodes) != 1 {
			return fmt.Errorf("error %#v (%w), want a NotFormedError: 1 of 2 nodes", e, err)
		}
		got := e.Nodes[0]
		if got.Rank != 1 || got.Node == (nexar.NodeID{}) || !strings.HasPrefix(got.Addr, "127.0.0.1:") || !strings.HasSuffix(got.Name, fmt.Sprint(":", os.Getpid())) {
			return fmt.Errorf("node %+v, want rank 1 of this process at 127.0.0.1", got)
		}
		if !strings.Contains(err.Error(), "missing 1 (rank 0)") || !strings.Contains(err.Error(), got.Addr) {
			return fmt.Errorf("error %w: want the missing rank and the address of the node", err)
		}
	}
	return nil
}
