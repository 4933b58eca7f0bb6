package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A show prints the progress of the campaign: a bar on a terminal, elsewhere a line for each turn.
type show struct {
	out   io.Writer
	bar   *progressbar.ProgressBar // nil if out is not a terminal
	runs  int
	begun int
	began time.Time
}

func newShow(out io.Writer, runs int) *show {
	s := &show{out: out, runs: runs, began: time.Now()}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		s.bar = progressbar.NewOptions(runs,
			progressbar.OptionSetWriter(out), progressbar.OptionFullWidth(), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	}
	return s
}

func (s *show) progress(setting, system, op string, round int) {
	run := fmt.Sprintf("%s, round %d, %s: %s", setting, round, op, system)
	s.begun++
	if s.bar == nil {
		fmt.Fprintf(s.out, "%6s  %d/%d  %s\n", time.Since(s.began).Round(time.Second), s.begun, s.runs, run)
		return
	}
	s.bar.Describe(run)
	// The measurement goes on if the terminal is closed.
	_ = s.bar.Set(s.begun - 1)
}

func (s *show) note(text string) {
	if s.bar != nil {
		_ = s.bar.Clear()
	}
	fmt.Fprintln(s.out, text)
}

func (s *show) end() {
	if s.bar != nil {
		_ = s.bar.Finish()
	}
}
