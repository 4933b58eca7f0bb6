package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/nexar-go/nexar"

	"github.com/nexar-go/nexar/bench/hosts"
	"github.com/nexar-go/nexar/bench/results"
)

// A Campaign measures settings.
type Campaign struct {
	Programs *Programs
	Schedule Schedule
	Rounds   int
	Timeout  time.Duration // of one turn of one system

	// Progress, if not nil, is called before each turn.
	Progress func(setting, system, op string, round int)
	// Note, if not nil, is called with each error that does not end the campaign.
	Note func(text string)
}

// failuresMax is the number of consecutive failures of an operation after which a system no longer gets turns for it.
const failuresMax = 2

// Turns returns the maximum number of turns of a setting.
func (c *Campaign) Turns(s Setting) int { return c.Rounds * len(s.Systems) * len(c.work(s)) }

// A job is the work of one turn.
type job struct {
	op    string
	flags []string
}

// work returns the jobs of a round.
func (c *Campaign) work(s Setting) []job {
	var all []job
	for _, op := range s.Ops {
		all = append(all, job{op, c.Schedule.flags(op)})
		if op == "send_recv" {
			all = append(all, job{results.FirstSecond, firstSecond()})
		}
	}
	return all
}

// Measure measures a setting. Failures of systems are entries of the file. It returns an error
// if there is no measurement, if hosts cannot be made, or if ctx ends.
func (c *Campaign) Measure(ctx context.Context, s Setting) (*results.File, error) {
	f := &results.File{Header: results.Header{
		Setting: s.Name, Title: s.Title, Ranks: s.Ranks, Day: time.Now().Format(time.DateOnly),
		Rounds: c.Rounds, Budget: c.Schedule.Budget, Busy: busy(ctx), Machine: ThisMachine(), Software: maps.Clone(c.Programs.Software),
	}}
	for _, system := range s.Systems {
		system.Missing = c.Programs.Missing[system.Program]
		f.Header.Systems = append(f.Header.Systems, system.System)
	}
	var w *hosts.Network
	if s.Hosts > 0 {
		var err error
		if w, err = hosts.New(ctx, s.Hosts); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		defer w.Close()
	}
	failures := make(map[string]int) // in sequence, by system and operation
	for round := 1; round <= c.Rounds; round++ {
		for _, job := range c.work(s) {
			for j := range s.Systems {
				// The order rotates, so that every system runs first equally often.
				i := (j + round - 1) % len(s.Systems)
				key := s.Systems[i].Name + " " + job.op
				if f.Header.Systems[i].Missing != "" || failures[key] >= failuresMax {
					continue
				}
				if c.Progress != nil {
					c.Progress(s.Name, s.Systems[i].Label, job.op, round)
				}
				err := c.turn(ctx, s, i, job, round, w, f)
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				failures[key]++
				if err == nil {
					failures[key] = 0
				} else if c.Note != nil {
					c.Note(fmt.Sprintf("%s, %s, %s, round %d: %v", s.Name, s.Systems[i].Label, job.op, round, err))
				}
			}
		}
	}
	if len(f.Ops()) == 0 {
		return nil, fmt.Errorf("%s: no system was measured; the notes above name the failures", s.Name)
	}
	return f, nil
}

// turn runs a system once and adds its measurements to f, including those before a failure, with the state of the processors.
func (c *Campaign) turn(ctx context.Context, s Setting, i int, job job, round int, w *hosts.Network, f *results.File) (err error) {
	dir, err := os.MkdirTemp("", "nexar-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	system := s.Systems[i]
	l := launch{
		setting: s, work: job.flags, programs: c.Programs, dir: dir, token: nexar.NewToken(), root: os.Geteuid() == 0,
	}
	if w != nil {
		l.network = w
		if l.agent, err = w.WriteAgent(dir); err != nil {
			return err
		}
	}
	all := l.processes(system)
	before := RoundTrip()
	output, err := together(all).run(ctx, c.Timeout)
	after := RoundTrip()
	lines, err2 := results.Parse(output)
	entries, about, err3 := results.Merge(round, system.Name, s.Ranks, lines)
	if err = cmp.Or(err, err2, err3); err != nil {
		entries = append(entries, results.Entry{Round: round, System: system.Name, Op: job.op, Failed: err.Error()})
	}
	for _, e := range entries {
		e.Op, e.Before, e.After = job.op, before, after
		f.Entries = append(f.Entries, e)
	}
	if column := &f.Header.Systems[i]; about != "" {
		column.About, column.Command = about, l.readable(all[len(all)-1])
	}
	return err
}
