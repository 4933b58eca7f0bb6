package api

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
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

// Of the ranks of a host that a launcher has started with NEXAR_SEEDS, one warns that no seed is reached.
func TestOneRankOfAHostWarns(t *testing.T) {
	clearEnv(t)
	t.Setenv("NEXAR_SEEDS", "127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	var joining sync.WaitGroup
	defer joining.Wait()
	defer cancel()
	var logs [3]chan string
	for rank := range logs {
		for name, value := range map[string]string{"RANK": strconv.Itoa(rank), "WORLD_SIZE": "3", "LOCAL_RANK": strconv.Itoa(rank), "LOCAL_WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "1"} {
			t.Setenv(name, value)
		}
		logs[rank] = make(chan string, 100)
		log := slog.New(slog.NewTextHandler(lineWriter(logs[rank]), nil))
		joining.Go(func() {
			if node, err := nexar.Join(ctx, nexar.Config{Token: nexar.NewToken(), Listen: "127.0.0.1:0", Log: log}); err == nil {
				node.Close()
				t.Error("a node has joined without a seed")
			}
		})
		for !strings.Contains(<-logs[rank], "a launcher tells the rank of this process") { // It has read the variables.
		}
	}
	for rank, lines := range logs {
		line := ""
		for !strings.Contains(line, "no seed reached yet") {
			line = <-lines
		}
		if warns := strings.Contains(line, "level=WARN"); warns != (rank == 0) {
			t.Errorf("rank %d says %s", rank, line)
		}
	}
}

// A lineWriter sends what is written.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	w <- string(b)
	return len(b), nil
}
