package api

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
)

// clearEnv unsets the variables of launchers and of nexar.
func clearEnv(t *testing.T) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "NEXAR_") || strings.Contains(name, "SIZE") || strings.Contains(name, "RANK") ||
			strings.HasPrefix(name, "SLURM_") || name == "JOB_COMPLETION_INDEX" {
			t.Setenv(name, "") // restores the value at the end of the test
			os.Unsetenv(name)
		}
	}
}

// TestJoinOrLocalAlone: without a seed a program gets a world of one node that supports all calls.
func TestJoinOrLocalAlone(t *testing.T) {
	clearEnv(t)
	ctx := t.Context()
	for range 2 { // two separate worlds
		node, err := nexar.JoinOrLocal(ctx, nexar.Config{LaunchSeeds: 3}) // of the worlds that launchers start
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		world := node.World()
		if world.Size() != 1 || world.Rank() != 0 || len(node.Peers()) != 0 {
			t.Fatalf("rank %d of %d, peers %v", world.Rank(), world.Size(), node.Peers())
		}
		steps := 0
		for c, err := range node.Epochs(ctx) {
			x := []float64{3}
			sum, one := nexar.AllReduceOne(ctx, c, 2, nexar.Sum)
			changed, reconfigured := node.Reconfigure(ctx)
			if err := errors.Join(err, nexar.Sync(ctx, c, x), one, reconfigured, c.Barrier(ctx)); err != nil || sum != 2 || changed {
				t.Fatalf("sum %d, changed %v, error %v", sum, changed, err)
			}
			if steps++; steps == 1 {
				break
			}
		}
		world.Register("double", func(_ context.Context, _ int, b []byte) ([]byte, error) { return append(b, b...), nil })
		if b, err := world.Call(ctx, 0, "double", []byte("ab")); err != nil || string(b) != "abab" {
			t.Errorf("call: %q, %v", b, err)
		}
		if err := node.Close(); err != nil {
			t.Error(err)
		}
		if err := world.Barrier(ctx); !errors.Is(err, nexar.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestJoinOrLocalJoins: with a seed in the Config or the environment, JoinOrLocal is Join.
func TestJoinOrLocalJoins(t *testing.T) {
	clearEnv(t)
	ctx := t.Context()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	t.Setenv("NEXAR_SEEDS", seed.Addr())
	results := make(chan error, 2)
	for i, cfg := range []nexar.Config{{Listen: "127.0.0.1:0"}, {Listen: "127.0.0.1:0", Seeds: []string{seed.Addr()}}} {
		go func() {
			node, err := nexar.JoinOrLocal(ctx, cfg)
			if err == nil {
				defer node.Close()
				if n := node.World().Size(); n != 2 {
					err = fmt.Errorf("node %d: a world of %d", i, n)
				} else {
					err = node.World().Barrier(ctx)
				}
			}
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestJoinOrLocalRefuses: a setting that needs a seed is an error that names the setting.
func TestJoinOrLocalRefuses(t *testing.T) {
	rank := 0
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(nexar.NewToken()), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		env  string // NAME=VALUE
		cfg  nexar.Config
		want string
	}{
		"token":              {env: "NEXAR_CLUSTER_TOKEN=" + nexar.NewToken(), want: "NEXAR_CLUSTER_TOKEN is set"},
		"token of Config":    {cfg: nexar.Config{Token: nexar.NewToken()}, want: "NEXAR_CLUSTER_TOKEN is set"},
		"token file":         {env: "NEXAR_CLUSTER_TOKEN_FILE=" + tokenFile, want: "NEXAR_CLUSTER_TOKEN_FILE is set"},
		"file of Config":     {cfg: nexar.Config{TokenFile: tokenFile}, want: "NEXAR_CLUSTER_TOKEN_FILE is set"},
		"rank":               {env: "NEXAR_RANK=0", want: "NEXAR_RANK is set"},
		"rank of Config":     {cfg: nexar.Config{Rank: &rank}, want: "NEXAR_RANK is set"},
		"advertised address": {env: "NEXAR_ADVERTISE=10.0.0.1", want: "NEXAR_ADVERTISE is set"},
		"a CA":               {env: "RANK=0 WORLD_SIZE=1 NEXAR_CA_FILE=" + caFile, want: "the seed that a process of torchrun runs has a CA of its own"},
		"spare":              {env: "NEXAR_SPARE=1", want: "NEXAR_SPARE is set"},
		"seeds set to \"\"":  {env: "NEXAR_SEEDS=", want: "NEXAR_SEEDS is empty"},
		"misspelt":           {env: "NEXAR_SEED=10.0.0.1:7946", want: "did you mean NEXAR_SEEDS?"},
		"of nexar run":       {env: "NEXAR_LOCAL_RANK=1", want: "NEXAR_LOCAL_RANK is set"},
		"world of nexar run": {env: "NEXAR_WORLD=4", want: "NEXAR_WORLD is set"},
		"torchrun":           {env: "WORLD_SIZE=4", want: "WORLD_SIZE is \"4\", but RANK is not set"},
		"Open MPI":           {env: "OMPI_COMM_WORLD_SIZE=2", want: "OMPI_COMM_WORLD_RANK is not set"},
		"MPICH":              {env: "PMI_SIZE=2", want: "PMI_RANK is not set"},
		"a rank, no size":    {env: "RANK=3", want: "RANK is \"3\", but WORLD_SIZE is not set"},
		"rank of Open MPI":   {env: "OMPI_COMM_WORLD_RANK=1", want: "OMPI_COMM_WORLD_SIZE is not set"},
		"rank of MPICH":      {env: "PMI_RANK=1", want: "PMI_SIZE is not set"},
		"rank of PMIx":       {env: "PMIX_RANK=1", want: "PMIX_RANK is \"1\", but OMPI_COMM_WORLD_SIZE is not set"},
		"indexed job":        {env: "JOB_COMPLETION_INDEX=2", want: "set NEXAR_WORLD to the completions of the Job"},
		"batch script":       {env: "SLURM_JOB_ID=12 SLURM_NTASKS=8", want: "start it by srun"},
		"no consensus": {
			env:  "RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 NEXAR_LAUNCH_SEEDS=3 NEXAR_FORM_TIMEOUT_SECS=1",
			want: "NEXAR_LAUNCH_SEEDS=3: several seeds need Config.Consensus",
		},
		"malformed":           {env: "NEXAR_RANK=x", want: "NEXAR_RANK"},
		"malformed transport": {env: "NEXAR_TRANSPORTS=bluetooth", want: "NEXAR_TRANSPORTS"},
	} {
		t.Run(name, func(t *testing.T) {
			clearEnv(t)
			for entry := range strings.FieldsSeq(test.env) {
				name, value, _ := strings.Cut(entry, "=")
				t.Setenv(name, value)
			}
			node, err := nexar.JoinOrLocal(t.Context(), test.cfg)
			if !errors.Is(err, nexar.ErrConfig) || !strings.Contains(fmt.Sprint(err), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			if node != nil {
				node.Close()
			}
		})
	}
}

// TestJoinOrLocalOfOne: the only process of a launcher gets a world of one node.
func TestJoinOrLocalOfOne(t *testing.T) {
	clearEnv(t)
	for _, name := range []string{"WORLD_SIZE", "LOCAL_WORLD_SIZE"} {
		t.Setenv(name, "1")
	}
	for _, name := range []string{"RANK", "LOCAL_RANK"} {
		t.Setenv(name, "0")
	}
	t.Setenv("MASTER_ADDR", "localhost")
	t.Setenv("MASTER_PORT", "29500")
	node, err := nexar.JoinOrLocal(t.Context(), nexar.Config{Transports: []string{"shm", "tcp"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Error(err)
	}
}

// TestJoinWithoutLauncher: the error gives each reason why there is no launcher once.
func TestJoinWithoutLauncher(t *testing.T) {
	clearEnv(t)
	node, err := nexar.Join(t.Context(), nexar.Config{Launcher: "none"})
	if node != nil || !errors.Is(err, nexar.ErrConfig) || strings.Count(err.Error(), "NEXAR_LAUNCHER is none") != 1 {
		t.Errorf("got %v, want an ErrConfig with the value of NEXAR_LAUNCHER once", err)
	}
}
