//race:none it starts no goroutine

package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/simulate"
)

// A million ranks need few rounds.
func ExampleRun() {
	model := simulate.Model{Network: simulate.Path{Latency: 2 * time.Microsecond, Rate: 25e9, Message: 500 * time.Nanosecond}}
	for _, algorithm := range []string{"recursive-doubling", "circulant"} {
		r, err := simulate.Run(context.Background(), model, simulate.Call{Collective: "all_reduce", Algorithm: algorithm, Ranks: 1000, Bytes: 8}, nil)
		if err != nil {
			panic(err)
		}
		fmt.Println(algorithm, r.Time, r.Messages, "messages")
	}
	// Output:
	// recursive-doubling 33.004µs 5584 messages
	// circulant 64.501µs 21978 messages
}

// Algorithms has those for links only, and those for the number of ranks only.
func TestAlgorithms(t *testing.T) {
	names, err := simulate.Algorithms("all_reduce", 1000)
	if err != nil || !slices.Contains(names, "ring") || slices.Contains(names, "flat") || slices.Contains(names, "staged") {
		t.Errorf("got %v, %v", names, err)
	}
	if names, err := simulate.Algorithms("all_reduce", 4); err != nil || !slices.Contains(names, "flat") {
		t.Errorf("for few ranks got %v, %v", names, err)
	}
	if _, err := simulate.Algorithms("reduction", 4); !errors.Is(err, simulate.ErrInvalid) || !strings.Contains(err.Error(), "all_reduce") {
		t.Errorf("got %v", err)
	}
	for _, c := range simulate.Collectives() {
		if names, err := simulate.Algorithms(c, 4); err != nil || len(names) == 0 {
			t.Errorf("%s: got %v, %v", c, names, err)
		}
	}
}

// Ranks that share hosts have the hierarchical algorithms over links too, and these send less between hosts.
func TestHierarchical(t *testing.T) {
	m := simulate.Model{RanksPerHost: 4, Network: simulate.Path{Latency: 10 * time.Microsecond, Rate: 1e9}, Memory: simulate.Path{Latency: time.Microsecond, Rate: 10e9}}
	names, err := m.Algorithms("all_reduce", 32)
	if err != nil || !slices.Contains(names, "hosts-recursive-doubling") || !slices.Contains(names, "ring") || slices.Contains(names, "groups") {
		t.Fatalf("got %v, %v", names, err)
	}
	run := func(algorithm string) simulate.Result {
		t.Helper()
		r, err := simulate.Run(context.Background(), m, simulate.Call{Collective: "all_reduce", Algorithm: algorithm, Ranks: 32, Bytes: 1 << 20}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	hierarchical, flat := run("hosts-recursive-doubling"), run("recursive-doubling")
	if 2*hierarchical.BusiestBytes > flat.BusiestBytes || hierarchical.Time >= flat.Time {
		t.Errorf("hosts-recursive-doubling: %+v, recursive-doubling: %+v", hierarchical, flat)
	}
	for _, none := range []simulate.Model{{}, {RanksPerHost: 32}} {
		if names, err := none.Algorithms("all_reduce", 32); err != nil || slices.Contains(names, "hosts-circulant") {
			t.Errorf("%d ranks on each host: got %v, %v", none.RanksPerHost, names, err)
		}
	}
	for want, call := range map[string]simulate.Call{
		"hosts-leader of 100000 ranks on 25000 hosts: too large: ": {Collective: "all_reduce", Algorithm: "hosts-leader", Ranks: 100_000},
		"hosts-direct of 8192 ranks: too large: the plans have":    {Collective: "all_reduce", Algorithm: "hosts-direct", Ranks: 8192},
	} {
		if _, err := simulate.Run(context.Background(), m, call, nil); !errors.Is(err, simulate.ErrTooLarge) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Rings of more than 4,096 ranks are simulated by symmetry by default, and other plans in full.
func TestFullRingMax(t *testing.T) {
	for algorithm, want := range map[string]bool{"ring": true, "recursive-doubling": false} {
		r, err := simulate.Run(context.Background(), simulate.Model{}, simulate.Call{Collective: "all_reduce", Algorithm: algorithm, Ranks: 4097, Bytes: 8}, nil)
		if err != nil || r.Symmetric != want {
			t.Errorf("%s: by symmetry: %v, %v, want %v", algorithm, r.Symmetric, err, want)
		}
	}
}

// Errors name the value and the possible ones.
func TestInvalid(t *testing.T) {
	for want, change := range map[string]func(m *simulate.Model, c *simulate.Call){
		`topology "mesh": unknown name: want a form such as flat`: func(m *simulate.Model, _ *simulate.Call) { m.Topology = "mesh" },
		`topology "flat:2": flat has no parameters`:               func(m *simulate.Model, _ *simulate.Call) { m.Topology = "flat:2" },
		`"x" is no number of hosts at a leaf`:                     func(m *simulate.Model, _ *simulate.Call) { m.Topology = "fat-tree:x:2" },
		`"9" is no oversubscription between 1 and 8`:              func(m *simulate.Model, _ *simulate.Call) { m.Topology = "fat-tree:8:9" },
		`"" is no number of hosts in a dimension`:                 func(m *simulate.Model, _ *simulate.Call) { m.Topology = "torus:" },
		`topology torus:4x4: it has 16 hosts, the ranks are on 8`: func(m *simulate.Model, _ *simulate.Call) { m.Topology = "torus:4x4" },
		`all_reduce of 8 ranks has no algorithm "tree": want one`: func(_ *simulate.Model, c *simulate.Call) { c.Algorithm = "tree" },
		`unknown collective "reduction": want one of barrier`:     func(_ *simulate.Model, c *simulate.Call) { c.Collective = "reduction" },
		`root 8: must be a rank below 8`:                          func(_ *simulate.Model, c *simulate.Call) { c.Root = 8 },
		`-1 ranks: must be between 1 and`:                         func(_ *simulate.Model, c *simulate.Call) { c.Ranks = -1 },
		`-1 bytes: must not be negative`:                          func(_ *simulate.Model, c *simulate.Call) { c.Bytes = -1 },
		`direct of 100000 ranks: too large: the plans have about`: func(_ *simulate.Model, c *simulate.Call) { c.Ranks, c.Algorithm = 100_000, "direct" },
	} {
		m, c := simulate.Model{}, simulate.Call{Collective: "all_reduce", Algorithm: "ring", Ranks: 8, Bytes: 8}
		change(&m, &c)
		_, err := simulate.Run(context.Background(), m, c, nil)
		if !errors.Is(err, simulate.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if errors.Is(err, simulate.ErrTooLarge) != strings.Contains(want, "too large") {
			t.Errorf("%v is of the wrong kind", err)
		}
	}
	if err := (simulate.Model{Topology: "torus:2x4"}).Check(8); err != nil {
		t.Error(err)
	}
	if err := (simulate.Model{Topology: "torus:2x4", RanksPerHost: 2}).Check(8); !errors.Is(err, simulate.ErrInvalid) {
		t.Errorf("8 ranks on 8 hosts of 2: got %v", err)
	}
}

// A cancelled context ends the simulation, and Run returns its cause.
func TestCancel(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	calls := 0
	_, err := simulate.Run(ctx, simulate.Model{}, simulate.Call{Collective: "all_reduce", Algorithm: "ring", Ranks: 300, Bytes: 8}, func(done, all int64) {
		calls++
		cancel(cause)
	})
	if !errors.Is(err, cause) || calls != 1 {
		t.Errorf("got %v after %d calls of progress", err, calls)
	}
}
