package command

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/bench"
	"github.com/nexar-go/nexar/simulate"
)

// addCompletions lets a shell complete the values of flags. Files are proposed only where a value
// names one, and for the program of nexar run.
func addCompletions(root *cobra.Command, h Hardware) {
	values := map[string]cobra.CompletionFunc{
		"algorithm": completeAlgorithms,
		"device":    completeValue(h.devices()...),
		"env":       completeEnv,
		"log-level": completeValue("debug", "info", "warn", "error"),
		"max":       completeSize,
		"min":       completeSize,
		"op":        completeOps,
		"seed":      completeValue(strings.Split(os.Getenv("NEXAR_SEEDS"), ",")...),
		"topology":  completeTopology,
		"transport": completeValue(h.transports()...),
	}
	files := []string{"json", "model", "peer-token-file", "ca-cert", "ca-key", "state-dir"}
	for _, cmd := range root.Commands() {
		if cmd.Name() != "run" && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			complete, ok := values[f.Name]
			switch {
			case slices.Contains(files, f.Name):
				return
			case !ok:
				complete = cobra.NoFileCompletions
			}
			if err := cmd.RegisterFlagCompletionFunc(f.Name, matching(complete)); err != nil {
				panic(err) // the flag exists and has no completion yet
			}
		})
	}
}

// matching returns the completions of f that begin with the given text.
func matching(f cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		all, directive := f(cmd, args, begun)
		return slices.DeleteFunc(slices.Clone(all), func(c cobra.Completion) bool { return !strings.HasPrefix(c, begun) }), directive
	}
}

// completeValue completes one of a few values.
func completeValue(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder)
}

// completeSize completes --min and --max of nexar bench and nexar simulate, which are numbers for nexar run and
// nexar seed.
func completeSize(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if cmd.Name() != "bench" && cmd.Name() != "simulate" {
		return cobra.NoFileCompletions(cmd, args, begun)
	}
	return completeValue("8", "1KiB", "64KiB", "1MiB", "64MiB", "1GiB")(cmd, args, begun)
}

// completeTopology completes --topology: the network of nexar simulate, and the neighbors of nexar run.
func completeTopology(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if cmd.Name() == "simulate" {
		return completeValue(simulate.Topologies()...)(cmd, args, begun)
	}
	return completeValue("full", "k-regular:2", "k-regular:4", "k-regular:6", "hypercube")(cmd, args, begun)
}

// completeOps completes the list of --op.
func completeOps(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ops := bench.Ops()
	if cmd.Name() == "simulate" {
		ops = simulate.Collectives()
	}
	if compare, err := cmd.Flags().GetBool("algorithms"); err == nil && compare {
		ops = bench.Collectives()
	}
	if !strings.Contains(begun, ",") {
		ops = append(ops, "all")
	}
	return completeList("", begun, ops)
}

// completeAlgorithms completes the list of --algorithm with those of the operations of --op, for the
// least number of ranks.
func completeAlgorithms(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ops, opsErr := cmd.Flags().GetStringSlice("op")
	ranks, ranksErr := cmd.Flags().GetIntSlice("ranks")
	if opsErr != nil || ranksErr != nil || len(ranks) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if slices.Contains(ops, "all") {
		ops = simulate.Collectives()
	}
	perHost, err := cmd.Flags().GetInt("ranks-per-host")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, op := range ops {
		if list, err := (simulate.Model{RanksPerHost: perHost}).Algorithms(op, slices.Min(ranks)); err == nil {
			names = append(names, list...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if !strings.Contains(begun, ",") {
		names = append(names, "all")
	}
	return completeList("", begun, names)
}

// completeList completes the last element of a list separated by commas. It does not propose elements
// that are in the list already. prefix precedes the list in the argument.
func completeList(prefix, begun string, values []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	given := strings.Split(begun, ",")
	given = given[:len(given)-1]
	for _, v := range given {
		prefix += v + ","
	}
	var proposed []cobra.Completion
	for _, v := range values {
		if !slices.Contains(given, v) {
			proposed = append(proposed, prefix+v)
		}
	}
	return proposed, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeEnv completes --env NAME=VALUE for the settings of nodes in [nexar.Config].
func completeEnv(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	name, value, valued := strings.Cut(begun, "=")
	var names []string
	for _, setting := range reflect.VisibleFields(reflect.TypeFor[nexar.Config]()) {
		env := setting.Tag.Get("env")
		if env == "" || env == "-" {
			env = setting.Tag.Get("also")
		}
		switch {
		case env == "", env == "NEXAR_CLUSTER_TOKEN": // a token on a command line is no secret
		case !valued:
			names = append(names, env+"=")
		case env != name:
		case name == "NEXAR_TRANSPORTS":
			return completeList(name+"=", value, []string{"shm", "tcp", "quic"})
		case name == "NEXAR_ALGORITHMS":
			return completeList(name+"=", value, algorithms(cmd.Context()))
		case setting.Tag.Get("one") != "":
			return completeOne(name, strings.Split(setting.Tag.Get("one"), ","))
		case setting.Type.Kind() == reflect.Bool:
			return completeOne(name, []string{"0", "1"})
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeOne completes NAME=VALUE with one of the values.
func completeOne(name string, values []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var proposed []cobra.Completion
	for _, v := range values {
		proposed = append(proposed, name+"="+v)
	}
	return proposed, cobra.ShellCompDirectiveNoFileComp
}

// algorithms returns the values of NEXAR_ALGORITHMS, "op=algorithm", without numbers of channels. It is
// empty if this process cannot communicate with itself.
func algorithms(ctx context.Context) []string {
	comms, err := nexar.Local(ctx, 4, nexar.Config{})
	if err != nil {
		return nil
	}
	var values []string
	for _, op := range bench.Collectives() {
		list, err := comms[0].Algorithms(op, 1<<20)
		if err != nil {
			continue
		}
		for _, a := range list {
			values = append(values, op+"="+a.Name)
		}
	}
	for _, c := range comms {
		_ = c.Close()
	}
	slices.Sort(values)
	return slices.Compact(values)
}
