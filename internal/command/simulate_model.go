package command

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/nexar-go/nexar/internal/input"
	"github.com/nexar-go/nexar/simulate"
)

// machineFlags are the flags of nexar simulate that describe the machine. A file of --model sets
// them by the same names.
type machineFlags struct {
	topology       string
	perHost, cores int
	hop, change    time.Duration
	poll, pollFor  time.Duration
	wake           time.Duration
	reduce, eager  string
	network        pathFlags
	memory         pathFlags
}

// pathFlags are the flags for one kind of messages.
type pathFlags struct {
	latency, message time.Duration
	rate, copying    string
}

// add adds the flags, with defaults for hosts at a network of 25 Gbit/s with TCP.
func (f *machineFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.topology, "topology", "flat", "`network` between hosts: flat, fat-tree:HOSTS:OVERSUBSCRIPTION, torus:AxBxC")
	flags.IntVar(&f.perHost, "ranks-per-host", 1, "ranks on each host")
	flags.IntVar(&f.cores, "cores", 0, "processors of each host (default one for each rank)")
	flags.DurationVar(&f.network.latency, "latency", 10*time.Microsecond, "latency between hosts")
	flags.StringVar(&f.network.rate, "bandwidth", "3GB", "`bytes` per second of each link; 0 is unlimited")
	flags.DurationVar(&f.network.message, "message-time", 2*time.Microsecond, "processor time of each message between hosts, at both ends")
	flags.StringVar(&f.network.copying, "copy-rate", "5GB", "`bytes` per second that a processor copies to and from the network; 0 is unlimited")
	flags.DurationVar(&f.memory.latency, "memory-latency", 500*time.Nanosecond, "latency within a host")
	flags.StringVar(&f.memory.rate, "memory-bandwidth", "20GB", "`bytes` per second of the memory of a host; 0 is unlimited")
	flags.DurationVar(&f.memory.message, "memory-message-time", 500*time.Nanosecond, "processor time of each message within a host, at both ends")
	flags.StringVar(&f.memory.copying, "memory-copy-rate", "10GB", "`bytes` per second that a processor copies within a host; 0 is unlimited")
	flags.DurationVar(&f.hop, "hop", 500*time.Nanosecond, "latency of each further switch or host on the path")
	flags.DurationVar(&f.change, "switch-time", 2*time.Microsecond, "time of a processor to change to another rank")
	flags.DurationVar(&f.poll, "poll-time", 0, "time for which a rank that polls occupies a processor before others have a turn")
	flags.DurationVar(&f.pollFor, "poll-for", 200*time.Microsecond, "time for which a rank that waits polls, before it sleeps")
	flags.DurationVar(&f.wake, "wake-time", 0, "processor time of a rank to continue after it has slept")
	flags.StringVar(&f.reduce, "reduce-rate", "10GB", "`bytes` per second that a processor reduces, or copies within a rank; 0 is unlimited")
	flags.StringVar(&f.eager, "eager", "128KiB", "`size` of the longest message without a grant")
}

// model returns the machine.
func (f *machineFlags) model() (simulate.Model, error) {
	m := simulate.Model{Topology: f.topology, RanksPerHost: f.perHost, Cores: f.cores, Hop: f.hop, Switch: f.change, Poll: f.poll, PollFor: f.pollFor, Wake: f.wake}
	m.Network.Latency, m.Network.Message = f.network.latency, f.network.message
	m.Memory.Latency, m.Memory.Message = f.memory.latency, f.memory.message
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--latency", f.network.latency}, {"--message-time", f.network.message}, {"--memory-latency", f.memory.latency},
		{"--memory-message-time", f.memory.message}, {"--hop", f.hop}, {"--switch-time", f.change},
		{"--poll-time", f.poll}, {"--poll-for", f.pollFor}, {"--wake-time", f.wake},
	} {
		if d.value < 0 || d.value > time.Minute {
			return m, usagef("%s %v: must be between 0 and 1m", d.flag, d.value)
		}
	}
	switch {
	case f.perHost < 1:
		return m, usagef("--ranks-per-host %d: must be at least 1", f.perHost)
	case f.cores < 0:
		return m, usagef("--cores %d: must not be negative", f.cores)
	}
	for _, r := range []struct {
		flag, text string
		to         *float64
	}{
		{"--bandwidth", f.network.rate, &m.Network.Rate}, {"--copy-rate", f.network.copying, &m.Network.CopyRate},
		{"--memory-bandwidth", f.memory.rate, &m.Memory.Rate}, {"--memory-copy-rate", f.memory.copying, &m.Memory.CopyRate},
		{"--reduce-rate", f.reduce, &m.ReduceRate},
	} {
		n, err := humanize.ParseBytes(r.text)
		if err != nil {
			return m, usagef("%s %q: %s: want bytes per second, such as 12GB", r.flag, r.text, sizeProblem(r.text))
		}
		*r.to = float64(n)
	}
	eager, err := parseSize("--eager", f.eager)
	if err != nil {
		return m, err
	}
	m.Eager = int(min(eager, 1<<40))
	return m, nil
}

// modelBytesMax bounds the file of a machine, which has a dozen values.
const modelBytesMax = 64 << 10

// readModel sets the flags of a machine from a file with a JSON object: names of flags without
// dashes, and their values. Flags that were given keep their values.
func readModel(ctx context.Context, flags *pflag.FlagSet, file string) error {
	if file == "" {
		return nil
	}
	text, err := input.Read(ctx, file, modelBytesMax, nil)
	if err != nil {
		return usagef("--model %s: %w", file, err)
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		return usagef(`--model %s: %w: want a JSON object such as {"topology": "fat-tree:32:4", "latency": "2us"}`, file, err)
	}
	var machine machineFlags
	known := pflag.NewFlagSet("model", pflag.ContinueOnError)
	machine.add(known)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		flag := flags.Lookup(name)
		if known.Lookup(name) == nil || flag == nil {
			var names []string
			known.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			return usagef("--model %s: unknown setting %q: want one of %s", file, name, strings.Join(names, ", "))
		}
		if flag.Changed {
			continue
		}
		var value string
		switch v := values[name].(type) {
		case string:
			value = v
		case float64:
			value = fmt.Sprintf("%.0f", v)
		default:
			return usagef("--model %s: %s: want a string or a number, not %v", file, name, v)
		}
		if err := flags.Set(name, value); err != nil {
			return usagef("--model %s: %s %q: want a value as for --%s", file, name, value, name)
		}
	}
	return nil
}
