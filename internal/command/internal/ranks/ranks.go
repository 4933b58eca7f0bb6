// Package ranks starts a program as ranks of a cluster on this host: a whole
// world with its own seed, or a part of a larger one.
//
// Call Run. It returns nil when all processes have exited with status 0,
// otherwise the error of package launch for the first other one, or the reason why
// the seed could not be started. If the error is a *launch.Failure, Run has printed
// it to Stderr.
//
// Where the seed chooses the ranks, Run learns the rank of a process from a file of 12 bytes. It passes the path in _NEXAR_RANK_FILE. The
// process writes its rank there when it has joined, and at each new communicator. The goroutine that copies the output reads the file
// after each read of output, so no line after Join has the earlier prefix. A path passes through shells and containers, as an inherited
// descriptor would not; where the path does not exist, the prefix remains.
package ranks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/command/internal/launch"
	"github.com/nexar-go/nexar/internal/command/internal/resources"
)

// Config describes the ranks to run.
type Config struct {
	Program []string // and its arguments
	Count   int      // processes of this host

	// Seeds are the addresses of the seeds of a larger cluster, as in NEXAR_SEEDS. If
	// it is empty, the processes are a world of their own, which other hosts cannot
	// reach.
	Seeds string
	World int   // ranks of the larger cluster, if known
	First *int  // rank of the first process in it; nil lets the seed choose
	Own   *Seed // a seed of the larger cluster to run here; nil: none

	// Token is the token of the cluster. If it is empty, a world of its own gets a new one. The processes get
	// it in a file.
	Token     string
	tokenFile *tokenFile // has Token; nil: there is no place for the file

	Env       []string // "name=value"; overrides everything else
	NoPrefix  bool     // lines of output do not begin with the rank
	FirstOnly bool     // only the first process has output: directly, without prefixes
	Elastic   bool     // after the world has formed, processes may fail, and more may join
	Min, Max  int      // nodes of an elastic world, 0 for the defaults
	Grace     time.Duration
	Title     string // begins messages: "nexar run"

	// Serve shows the cluster with these seeds and this token, in a browser or to Prometheus, until stop is called. ticket returns the shell command
	// that prints a ticket for the page.
	Serve []func(seeds, token string, ticket func() (string, error)) (stop func(), err error)

	// Abandoned, once closed, ends everything at once: see launch.Lifeline.
	Abandoned <-chan struct{}

	Stdin          *os.File
	Stdout, Stderr io.Writer
}

// Run starts the processes and waits for them.
func Run(ctx context.Context, cfg Config) error {
	path, err := launch.LookPath(cfg.Program[0])
	if err != nil {
		return err
	}
	if err := cfg.checkResources(); err != nil {
		return err
	}
	var w *world // nil if the cluster is a larger one
	if cfg.Seeds == "" {
		if w, err = startWorld(ctx, cfg); err != nil {
			return err
		}
		defer w.close()
		cfg.Token = w.token
	}
	if cfg.Token != "" {
		cfg.tokenFile, _ = newTokenFile(cfg.Token)
		defer cfg.tokenFile.close()
	}
	if w != nil {
		if err := w.printCommands(cfg); err != nil {
			return err
		}
	}
	if cfg.Own != nil {
		own, err := cfg.startOwn(ctx)
		if err != nil {
			return err
		}
		defer own.close()
	}
	for _, serve := range cfg.Serve {
		stop, err := cfg.serve(w, serve)
		if err != nil {
			return err
		}
		defer stop()
	}
	signals := make(chan os.Signal, 8)
	launch.Notify(signals, launch.Forwarded()...)
	defer signal.Stop(signals)
	// Without a reader of the output, writes fail, and launch.Run ends the children in
	// order. SIGPIPE would end this process at once.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)

	// Without the files, for example because there is no directory for them, lines keep the name of their process, and children
	// of ranks can join.
	reports, _ := newReports(cfg.Count)
	defer reports.close()
	var survives func() bool
	if cfg.Elastic {
		survives = func() bool { return w == nil || w.formed() }
	}
	err = launch.Run(launch.Config{
		Children: cfg.children(path, w, reports), Stdin: cfg.Stdin, Stdout: cfg.Stdout, Stderr: cfg.Stderr,
		Signals: signals, Grace: cfg.Grace, Title: cfg.Title, ExitError: w.endedEarly, Cause: w.cause, OnFailure: w.abandon, Survives: survives, Abandoned: cfg.Abandoned,
	})
	// An error is more precise than this note.
	if missing := w.missing(); missing != "" && err == nil {
		fmt.Fprintf(cfg.Stderr, "%s: note: %s\n", cfg.Title, missing)
	}
	return err
}

// serve calls a function of Serve.
func (cfg Config) serve(w *world, f func(seeds, token string, ticket func() (string, error)) (stop func(), err error)) (stop func(), err error) {
	seeds := cfg.Seeds
	if w != nil {
		seeds = w.addr
	}
	return f(seeds, cfg.Token, func() (command string, err error) {
		if w != nil && w.made {
			command, err = cfg.tokenFile.option()
		}
		return command + "nexar ticket", err
	})
}

// checkResources warns of limits of this system that may not suffice for the ranks, and returns an error
// if the world could not form.
func (cfg Config) checkResources() error {
	var missing []error
	env := environment(cfg.environment(os.Environ(), 0, nil))
	for _, f := range resources.Check(resources.NewWorld(cfg.Count, cfg.World, env.get("NEXAR_TRANSPORTS"), env.get("NEXAR_LINKS"))) {
		switch f.Level {
		case resources.Scarce:
			fmt.Fprintf(cfg.Stderr, "%s: warning: %s: %s\n", cfg.Title, f.Text, f.Fix)
		case resources.Missing:
			missing = append(missing, fmt.Errorf("%s: %s", f.Text, f.Fix))
		}
	}
	return errors.Join(missing...)
}

// children returns the processes to start.
func (cfg Config) children(path string, w *world, reports *reports) []launch.Child {
	outPaint, errPaint := paintFor(cfg.Stdout), paintFor(cfg.Stderr)
	list := make([]launch.Child, cfg.Count)
	for i := range list {
		env := environment(cfg.environment(os.Environ(), i, w))
		env.unset(rankFileVariable) // of a nexar run that has started this one
		if reports != nil {
			env.set(rankFileVariable, reports.path(i))
		}
		list[i] = launch.Child{Name: func() string { return cfg.name(i, w, reports) }, Path: path, Args: cfg.Program, Env: env}
		if !cfg.NoPrefix {
			list[i].OutPrefix = func(pid int) string { return outPaint(i, cfg.prefix(i, pid, reports)) }
			list[i].ErrPrefix = func(pid int) string { return errPaint(i, cfg.prefix(i, pid, reports)) }
		}
		if cfg.FirstOnly && i == 0 {
			list[i].Stdout, list[i].Stderr = fileOf(cfg.Stdout), fileOf(cfg.Stderr)
		}
	}
	return list
}

// name returns the name of process i in messages. Before its rank is known it is "process 2".
func (cfg Config) name(i int, w *world, reports *reports) string {
	if rank, ok := reports.rank(i); ok {
		return "rank " + rank
	}
	if cfg.First != nil || w != nil && w.formed() {
		return "rank " + cfg.label(i)
	}
	return "process " + strconv.Itoa(i)
}

// ranked reports whether the ranks of the processes are known beforehand.
func (cfg Config) ranked() bool { return cfg.Seeds == "" || cfg.First != nil }

// prefix identifies process i in its lines of output: by its newest rank or, while the seed has not chosen
// one, by the name under which the seed and nexar status show it.
func (cfg Config) prefix(i, pid int, reports *reports) string {
	if rank, ok := reports.rank(i); ok {
		return rank
	}
	if cfg.ranked() {
		return cfg.label(i)
	}
	name, err := os.Hostname()
	if err != nil {
		name = "unknown host"
	}
	return name + ":" + strconv.Itoa(pid)
}

// label is the rank of process i, or i if the seed chooses the ranks.
func (cfg Config) label(i int) string {
	if cfg.First != nil {
		i += *cfg.First
	}
	return strconv.Itoa(i)
}

// fileOf returns w as a file, or nil if it is none.
func fileOf(w io.Writer) *os.File {
	f, _ := w.(*os.File)
	return f
}
