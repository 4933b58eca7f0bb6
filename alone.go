package nexar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/nexar-go/nexar/internal/mesh"
)

// JoinOrLocal calls [Join] if cfg or the environment names a seed. Otherwise it returns the node of a
// world of one rank, so that a program runs with and without "nexar run" by the same calls:
//
//	node, err := nexar.JoinOrLocal(ctx, nexar.Config{})
//
// Without a seed it returns [ErrConfig] if a setting suggests that this process is one of several: a
// token, a rank, an address to advertise, [Config].Spare, an empty NEXAR_SEEDS, a misspelt NEXAR_
// variable, a variable of "nexar run", a variable of torchrun, srun, Open MPI or MPICH for more than
// one process, or a number of this process above 0, from one of these or from Kubernetes.
//
// A world of one rank has its own seed on the loopback interface, with a random token. [Node.Close]
// closes both. [Node.Epochs], [Node.Reconfigure] and [Node.Leave] behave as in larger worlds, but no
// other node can join.
func JoinOrLocal(ctx context.Context, cfg Config) (*Node, error) {
	filled, err := cfg.fill()
	if err == nil && len(filled.Seeds) == 0 {
		err = filled.checkAlone(os.LookupEnv, os.Environ())
	}
	if err != nil {
		return nil, opError("join", err)
	}
	if len(filled.Seeds) > 0 {
		return Join(ctx, cfg)
	}
	return joinAlone(ctx, cfg)
}

// joinAlone starts a seed and joins its world of one.
func joinAlone(ctx context.Context, cfg Config) (*Node, error) {
	const loopback = "127.0.0.1:0"
	token := NewToken()
	seed, err := StartSeed(ctx, SeedConfig{Listen: loopback, World: 1, Token: token, Transports: cfg.Transports, Factories: cfg.Factories, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	cfg.Seeds, cfg.Token, cfg.Listen = []string{seed.Addr()}, token, loopback
	n, err := Join(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, seed.Close())
	}
	leave := n.departure.leave
	n.departure.leave = func(ctx context.Context) ([]mesh.Unread, error) {
		unread, err := leave(ctx)
		return unread, errors.Join(err, seed.Close())
	}
	return n, nil
}

// checkAlone finds settings that make no sense without a seed.
func (cfg *Config) checkAlone(lookup func(name string) (value string, ok bool), environ []string) error {
	refuse := func(name, sign string) error {
		return fmt.Errorf("%w: %s %s, but there is no seed: set %s to its address, or unset %s to run alone",
			ErrConfig, name, sign, variable("Seeds"), name)
	}
	if _, ok := lookup(variable("Seeds")); ok {
		return fmt.Errorf("%w: %s is empty: set it to the address of a seed, or unset it to run alone", ErrConfig, variable("Seeds"))
	}
	signs := []struct {
		field string
		isSet bool
	}{{"TokenFile", cfg.TokenFile != ""}, {"Token", cfg.Token != ""}, {"CAFile", cfg.CAFile != ""}, {"Rank", cfg.Rank != nil}, {"Advertise", cfg.Advertise != ""}, {"Spare", cfg.Spare}}
	for _, s := range signs {
		if s.isSet {
			return refuse(variable(s.field), "is set")
		}
	}
	for _, name := range []string{"NEXAR_WORLD", "NEXAR_LOCAL_RANK"} { // set by nexar run
		if value, _ := lookup(name); value != "" {
			return refuse(name, "is set")
		}
	}
	for _, name := range []string{"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"} {
		value, _ := lookup(name)
		if n, _ := strconv.Atoi(value); n > 1 {
			return refuse(name, fmt.Sprintf("says that a launcher has started %d processes", n))
		}
	}
	for _, name := range []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"} {
		value, _ := lookup(name)
		if n, _ := strconv.Atoi(value); n > 0 {
			return refuse(name, fmt.Sprintf("says that this process has the number %d among several", n))
		}
	}
	for _, p := range CheckEnviron(environ) {
		return fmt.Errorf("%w: %s (%s), and there is no seed", ErrConfig, p.Text, p.Fix)
	}
	return nil
}
