package campaign

import (
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
	Timeout  time.Duration // of one run of one system

	// Progress, if not nil, is called before each run.
	Progress func(setting, system string, round int)
	// Note, if not nil, is called with each error that does not end the campaign.
	Note func(text string)
}

// failuresMax is the number of consecutive failures after which a system is skipped.
const failuresMax = 2

// Runs returns the maximum number of runs of a setting.
func (c *Campaign) Runs(s Setting) int { return c.Rounds * len(s.Systems) }

// Measure measures a setting. Failures of systems are entries of the file. It returns an error
// if there is no measurement, if hosts cannot be made, or if ctx ends.
func (c *Campaign) Measure(ctx context.Context, s Setting) (*results.File, error) {
	f := &results.File{Header: results.Header{
		Setting: s.Name, Title: s.Title, Ranks: s.Ranks, Day: time.Now().Format(time.DateOnly),
		Rounds: c.Rounds, Budget: c.Schedule.Budget, Machine: ThisMachine(), Software: maps.Clone(c.Programs.Software),
	}}
	for _, system := range s.Systems {
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
	failures := make([]int, len(s.Systems))
	for i, system := range s.Systems {
		if why := c.Programs.Missing[system.Program]; why != "" {
			failures[i] = failuresMax
			f.Entries = append(f.Entries, results.Entry{System: system.Name, Failed: "not installed: " + why})
		}
	}
	for round := 1; round <= c.Rounds; round++ {
		for j := range s.Systems {
			// The order rotates, so that every system runs first equally often.
			i := (j + round - 1) % len(s.Systems)
			if failures[i] >= failuresMax {
				continue
			}
			c.progress(s, s.Systems[i], round)
			err := c.once(ctx, s, i, round, w, f)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			failures[i]++
			if err == nil {
				failures[i] = 0
				continue
			}
			c.note(fmt.Sprintf("%s, %s, round %d: %v", s.Name, s.Systems[i].Label, round, err))
			f.Entries = append(f.Entries, results.Entry{Round: round, System: s.Systems[i].Name, Failed: err.Error()})
		}
	}
	if len(f.Ops()) == 0 {
		return nil, fmt.Errorf("%s: no system was measured; the notes above name the failures", s.Name)
	}
	return f, nil
}

func (c *Campaign) progress(s Setting, system System, round int) {
	if c.Progress != nil {
		c.Progress(s.Name, system.Label, round)
	}
}

func (c *Campaign) note(text string) {
	if c.Note != nil {
		c.Note(text)
	}
}

// once runs a system once and adds its measurements to f, including those before a failure.
func (c *Campaign) once(ctx context.Context, s Setting, i, round int, w *hosts.Network, f *results.File) (err error) {
	dir, err := os.MkdirTemp("", "nexar-peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	system := s.Systems[i]
	l := launch{
		setting: s, schedule: c.Schedule, programs: c.Programs, dir: dir, token: nexar.NewToken(), root: os.Geteuid() == 0,
	}
	if w != nil {
		l.network = w
		if l.agent, err = w.WriteAgent(dir); err != nil {
			return err
		}
	}
	all := l.processes(system)
	output, failed := runAll(ctx, all, c.Timeout)
	lines, err := results.Parse(output)
	if err != nil {
		return errors.Join(failed, err)
	}
	entries, about, err := results.Merge(round, system.Name, s.Ranks, lines)
	f.Entries = append(f.Entries, entries...)
	if column := &f.Header.Systems[i]; about != "" {
		column.About, column.Command = about, l.readable(all[len(all)-1])
	}
	if failed != nil {
		return failed
	}
	return err
}
