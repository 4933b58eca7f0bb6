package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/nexar-go/nexar/cmd/nexar/internal/bench"
	"github.com/nexar-go/nexar/cmd/nexar/internal/report"
)

// A show is all that a benchmark writes: the table, the files, and a bar on a
// terminal while it runs. Errors are kept until the end, since ranks that
// have begun to measure must go on together.
type show struct {
	out     io.Writer
	table   *report.Table // nil if the JSON takes its place
	json    io.Writer     // nil: none is wanted
	file    *os.File      // what json writes to, if it is a file
	svg     string
	bar     *progressbar.ProgressBar // nil without a terminal
	errors  io.Writer
	began   time.Time
	results []bench.Result
	err     error
}

func newShow(s streams, f *benchFlags) (*show, error) {
	w := &show{out: s.out, errors: s.err, svg: f.svg, began: time.Now()}
	switch f.json {
	case "":
		w.table = report.NewTable(s.out)
	case "-":
		w.json = s.out
	default:
		w.table = report.NewTable(s.out)
		file, err := os.Create(f.json)
		if err != nil {
			return nil, err
		}
		w.file, w.json = file, file
	}
	return w, nil
}

// progress moves the bar.
func (w *show) progress(done, all int, op string, size int64) {
	if w.bar == nil {
		if f, ok := w.errors.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
			return
		}
		w.bar = progressbar.NewOptions(all, progressbar.OptionSetWriter(w.errors),
			progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionShowCount())
	}
	w.bar.Describe(fmt.Sprintf("%s %s", op, report.Size(size)))
	// A bar that cannot be drawn is no reason to stop measuring.
	_ = w.bar.Set(done)
}

// result writes a result.
func (w *show) result(r bench.Result) {
	w.results = append(w.results, r)
	if w.bar != nil {
		_ = w.bar.Clear()
	}
	if w.table != nil {
		w.err = errors.Join(w.err, w.table.Add(r))
	}
	if w.json != nil {
		w.err = errors.Join(w.err, report.JSON(w.json, r))
	}
}

// end writes what comes last. The error says what kept results from being
// measured or written, or that some are wrong.
func (w *show) end(measured error) error {
	if w.bar != nil {
		_ = w.bar.Clear()
	}
	if w.file != nil {
		w.err = errors.Join(w.err, w.file.Close())
	}
	if measured != nil {
		return measured
	}
	if w.svg != "" {
		w.err = errors.Join(w.err, w.draw())
	}
	summary := report.Summary(w.results, time.Since(w.began))
	if w.table != nil {
		_, err := fmt.Fprintf(w.out, "\n%s\n", summary)
		w.err = errors.Join(w.err, err)
	}
	if w.err != nil {
		return w.err
	}
	for _, r := range w.results {
		if r.Wrong > 0 {
			return fmt.Errorf("wrong results: %s", summary)
		}
	}
	return nil
}

func (w *show) draw() error {
	var drawing bytes.Buffer
	if err := report.Draw(&drawing, w.results); err != nil {
		return err
	}
	return os.WriteFile(w.svg, drawing.Bytes(), 0o666)
}
