package ranks

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// environment returns the environment of process i: that of this process, the variables of
// its rank and cluster, and the variables of the user, which override both.
func (cfg Config) environment(base []string, i int, w *world) []string {
	e := environment(slices.Clone(base))
	e.set("NEXAR_LOCAL_RANK", strconv.Itoa(i))
	if e.get(dumpVariable) == "" {
		e.set(dumpVariable, "1")
	}
	if cfg.Elastic && e.get(leaveVariable) == "" {
		e.set(leaveVariable, "1")
	}
	e.unset("NEXAR_RANK")
	if cfg.ranked() {
		e.set("NEXAR_RANK", cfg.label(i))
	}
	if w != nil {
		e.set("NEXAR_SEEDS", w.addr)
		e.unset("NEXAR_CA_FILE")
		e.set("NEXAR_WORLD", strconv.Itoa(cfg.Count))
		// Other hosts must not reach it.
		e.set("NEXAR_LISTEN", "127.0.0.1:0")
		e.unset("NEXAR_ADVERTISE")
	} else {
		e.set("NEXAR_SEEDS", cfg.Seeds)
		e.unset("NEXAR_WORLD")
		if cfg.World > 0 {
			e.set("NEXAR_WORLD", strconv.Itoa(cfg.World))
		}
	}
	e.set(runVariable, e.get(seedsVariable))
	if cfg.Token != "" {
		cfg.tokenFile.pass(&e, cfg.Token)
	}
	for _, pair := range cfg.Env {
		name, value, _ := strings.Cut(pair, "=")
		if name == tokenVariable || name == tokenFileVariable {
			e.unset(tokenVariable)
			e.unset(tokenFileVariable)
		}
		e.set(name, value)
	}
	return e
}

// seedsVariable has the addresses of the seeds, and runVariable has them again: see Nested.
const (
	seedsVariable = "NEXAR_SEEDS"
	runVariable   = "_NEXAR_RUN"
)

// Nested returns NEXAR_SEEDS if it is that of another nexar run, which has started this process or its parents: nobody
// has chosen it for this one. It is "" otherwise.
func Nested() (seeds string) {
	if seeds = os.Getenv(seedsVariable); seeds != os.Getenv(runVariable) {
		return ""
	}
	return seeds
}

// Unset removes the variables of the outer nexar run from the environment of this process: those of the rank and, with world, those
// of its world.
func Unset(world bool) {
	names := []string{runVariable, seedsVariable, "NEXAR_RANK", "NEXAR_WORLD", "NEXAR_LOCAL_RANK", leaveVariable}
	if world {
		names = append(names, tokenVariable, tokenFileVariable, "NEXAR_CA_FILE", "NEXAR_LISTEN", "NEXAR_ADVERTISE", "NEXAR_TOPOLOGY")
	}
	for _, name := range names {
		os.Unsetenv(name)
	}
}

// dumpVariable makes a process print its operations before it ends by SIGQUIT.
const dumpVariable = "NEXAR_DUMP_ON_QUIT"

// leaveVariable makes a node leave at its next Node.Reconfigure after SIGTERM.
const leaveVariable = "NEXAR_LEAVE_ON_SIGTERM"

// An environment is a list of "name=value".
type environment []string

// get returns the value of a variable, or "".
func (e environment) get(name string) string {
	for _, pair := range e {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

func (e *environment) unset(name string) {
	*e = slices.DeleteFunc(*e, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
}

func (e *environment) set(name, value string) {
	e.unset(name)
	*e = append(*e, name+"="+value)
}
