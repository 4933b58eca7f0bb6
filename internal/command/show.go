package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/nexar-go/nexar/internal/command/internal/bench"
	"github.com/nexar-go/nexar/internal/command/internal/report"
)

// A show writes the output of a benchmark: the table, the files, and a progress bar on a terminal.
// It keeps errors until the end, since the ranks must complete the measurement together.
type show struct {
	out    io.Writer                // for the table; nil if JSON goes to standard output
	json   io.Writer                // nil for none
	file   *os.File                 // json, if it is a file of this show
	bar    *progressbar.ProgressBar // nil without a terminal
	errors io.Writer
	began  time.Time
	err    error

	title string    // begins lines of progress without a terminal
	told  time.Time // when the last was written
}

// tellAfter is the interval of lines of progress without a terminal.
const tellAfter = 10 * time.Second

// tell writes a line of progress now and then: the next step, and the time that is left at the present rate.
func (w *show) tell(done, all int, what string) {
	if now := time.Now(); done > 0 && now.Sub(w.told) >= tellAfter {
		took := now.Sub(w.began)
		left := time.Duration(float64(took) * float64(all-done) / float64(done))
		fmt.Fprintf(w.errors, "%s: %s: %d %% after %v, about %v left\n", w.title, what, 100*done/all, took.Round(time.Second), left.Round(time.Second))
		w.told = now
	}
}

func newShow(ctx context.Context, s streams, title, jsonFile string) (*show, error) {
	now := time.Now()
	w := &show{out: s.out, errors: s.err, title: title, began: now, told: now}
	switch jsonFile {
	case "":
	case "-":
		w.out, w.json = nil, s.out
	default:
		file, err := create(ctx, jsonFile)
		if err != nil {
			return nil, err
		}
		w.file, w.json = file, file
	}
	return w, nil
}

// create creates or truncates a file to write to. If it is a pipe, create waits for its reader.
func create(ctx context.Context, name string) (*os.File, error) {
	var (
		f      *os.File
		err    error
		opened = make(chan struct{})
	)
	go func() {
		defer close(opened)
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	}()
	select {
	case <-opened:
		return f, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// keep keeps the first error in writing: the others are usually the same.
func (w *show) keep(err error) { w.err = cmp.Or(w.err, err) }

// progress updates the bar.
func (w *show) progress(done, all int, op string, size int64) {
	what := fmt.Sprintf("%s %s", op, report.Size(size))
	if w.bar == nil {
		if f, ok := w.errors.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
			w.tell(done, all, what)
			return
		}
		w.bar = progressbar.NewOptions(all, progressbar.OptionSetWriter(w.errors),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionShowCount())
	}
	w.bar.Describe(what)
	// A bar that cannot be drawn must not stop the measurement.
	_ = w.bar.Set(done)
}

// clear removes the bar, to make room for results.
func (w *show) clear() {
	if w.bar != nil {
		_ = w.bar.Clear()
	}
}

// An ending is the output after all measurements.
type ending struct {
	text  string // printed below the table
	wrong int64  // number of wrong elements
}

// end writes the ending. It returns an error if results could not be measured or written, or if some
// are wrong.
func (w *show) end(measured error, last func(took time.Duration) ending) error {
	w.clear()
	if w.file != nil {
		w.keep(w.file.Close())
	}
	if measured != nil {
		return measured
	}
	e := last(time.Since(w.began))
	if w.out != nil {
		_, err := fmt.Fprintf(w.out, "\n%s\n", e.text)
		w.keep(err)
	}
	if w.err == nil && e.wrong > 0 {
		return fmt.Errorf("verification failed: want 0 wrong elements: %s", e.text)
	}
	return w.err
}

// results shows the results of f, which calls bench.Run.
func (w *show) results(cfg bench.Config, f func(bench.Config) error) error {
	var list []bench.Result
	table := report.NewTable(w.out)
	cfg.Progress = w.progress
	cfg.Result = func(r bench.Result) {
		list = append(list, r)
		w.clear()
		if w.out != nil {
			w.keep(table.Add(r))
		}
		if w.json != nil {
			w.keep(report.JSON(w.json, r))
		}
	}
	return w.end(f(cfg), func(took time.Duration) ending {
		wrong := int64(0)
		for _, r := range list {
			wrong += r.Wrong
		}
		return ending{report.Summary(list, took), wrong}
	})
}

// comparisons shows the results of f, which calls bench.Compare.
func (w *show) comparisons(cfg bench.Config, f func(bench.Config) error) error {
	var list []bench.Comparison
	tables := report.NewAlgorithms(w.out)
	cfg.Progress = w.progress
	cfg.Compared = func(c bench.Comparison) {
		list = append(list, c)
		w.clear()
		if w.out != nil {
			w.keep(tables.Add(c))
		}
		for _, way := range c.Ways {
			if w.json != nil {
				w.keep(report.JSON(w.json, way))
			}
		}
	}
	return w.end(f(cfg), func(took time.Duration) ending {
		return ending{report.Verdicts(list) + report.AlgorithmsSummary(list, took), report.WrongElements(list)}
	})
}

// simulations shows the results of f, which passes them to add one after the other.
func (w *show) simulations(all []simulation, f func(add func(report.Simulation)) error) error {
	var list []report.Simulation
	tables := report.NewSimulations(w.out)
	err := f(func(s report.Simulation) {
		list = append(list, s)
		w.clear()
		if w.out != nil {
			w.keep(tables.Add(s))
		}
		for _, p := range s.Predictions {
			if w.json != nil {
				w.keep(report.JSON(w.json, p))
			}
		}
	})
	count := report.Count(len(all), "simulation")
	var failed error
	if err != nil && (len(list) == 0 || !errors.Is(err, context.Canceled)) {
		failed = err
	} else if err != nil { // Ctrl-C, which keeps what is complete
		count = fmt.Sprintf("%d of %s, interrupted,", len(list), count)
	}
	return cmp.Or(w.end(failed, func(took time.Duration) ending {
		return ending{text: fmt.Sprintf("%s in %.1f s", count, took.Seconds())}
	}), err)
}
