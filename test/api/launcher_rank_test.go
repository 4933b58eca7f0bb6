package api

import (
	"errors"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
)

// With NEXAR_SEEDS the rank of a launcher counts if its size is that of the world, and neither NEXAR_RANK nor "nexar run" has precedence.
func TestRankOfALauncherWithSeeds(t *testing.T) {
	openMPI := func(rank, size string) map[string]string {
		return map[string]string{
			"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "prte-1",
		}
	}
	with := func(name, value string) map[string]string {
		vars := openMPI("1", "2")
		vars[name] = value
		return vars
	}
	for name, test := range map[string]struct {
		vars map[string]string // of the node that joins first
		want int               // its rank
	}{
		"the rank of the launcher":        {openMPI("1", "2"), 1},
		"a launcher of another size":      {openMPI("1", "4"), 0},
		"NEXAR_RANK":                      {with("NEXAR_RANK", "0"), 0},
		"nexar run":                       {with("NEXAR_LOCAL_RANK", "0"), 0},
		"no launcher":                     {with("NEXAR_LAUNCHER", "none"), 0},
		"variables that are contradicted": {openMPI("2", "2"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnv(t)
			token := nexar.NewToken()
			joined := make(chan struct{}, 8)
			seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: token, Progress: func(nexar.SeedEvent) { joined <- struct{}{} }})
			if err != nil {
				t.Fatal(err)
			}
			defer seed.Close()
			t.Setenv("NEXAR_SEEDS", seed.Addr())
			for name, value := range test.vars {
				t.Setenv(name, value)
			}
			first := make(chan *nexar.Node, 1)
			go func() {
				node, err := nexar.Join(t.Context(), nexar.Config{Token: token, Listen: "127.0.0.1:0"})
				if err != nil {
					t.Error(err)
				}
				first <- node
			}()
			<-joined
			second, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, Token: token, Listen: "127.0.0.1:0", Rank: new(1 - test.want)})
			if err != nil {
				t.Fatal(err)
			}
			defer second.Close()
			if node := <-first; node != nil {
				if rank := node.World().Rank(); rank != test.want {
					t.Errorf("rank %d, want %d", rank, test.want)
				}
				node.Close()
			}
		})
	}
}

// A launcher that NEXAR_LAUNCHER requires must be there, with NEXAR_SEEDS as well.
func TestRequiredLauncherWithSeeds(t *testing.T) {
	clearEnv(t)
	t.Setenv("NEXAR_SEEDS", "127.0.0.1:1")
	t.Setenv("NEXAR_LAUNCHER", "openmpi")
	_, err := nexar.Join(t.Context(), nexar.Config{})
	if want := "NEXAR_LAUNCHER is openmpi, but OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE are not set"; !errors.Is(err, nexar.ErrConfig) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
