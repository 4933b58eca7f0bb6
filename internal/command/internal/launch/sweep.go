package launch

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A sweep ends the orphans of a run: descendants of children that have left the
// child's process group, as daemons do. It sends SIGTERM and, after the grace time,
// SIGKILL.
type sweep struct {
	orphans    *orphans
	grace      time.Duration
	signals    <-chan os.Signal
	abandoned  <-chan struct{}
	requested  int          // signals that requested the end of the run
	terminated map[int]bool // process groups that were sent SIGTERM before
	say        func(string)
}

// run returns when no orphan is left. With now it sends SIGKILL immediately.
func (s *sweep) run(now bool) {
	if s.orphans.none() {
		return
	}
	if !now {
		s.terminate()
	}
	if left := s.orphans.kill(); len(left) > 0 {
		s.say("could not kill " + describe(left) + ", left by the program")
	}
}

// terminate sends SIGTERM to all orphans, including orphans that appear later. It
// returns when none is left or the rest must be killed.
func (s *sweep) terminate() {
	timer := time.NewTimer(s.grace)
	defer timer.Stop()
	pause := time.Millisecond
	for !s.orphans.none() {
		running := s.orphans.terminate(s.terminated)
		select {
		case <-timer.C:
			if len(running) > 0 {
				s.say(fmt.Sprintf("%s, left by the program, still running %v after SIGTERM: killing", describe(running), s.grace))
			}
			return
		case <-s.abandoned:
			return
		case sig := <-s.signals:
			if requestsEnd(sig) {
				s.requested++
			}
			if s.requested >= requestsMax {
				return
			}
			for _, p := range running {
				p.signal(sig)
			}
		case <-time.After(pause):
			pause = min(2*pause, sweepPauseMax)
		}
	}
}

// sweepPauseMax is the longest pause between two looks for orphans.
const sweepPauseMax = 50 * time.Millisecond

// describe names processes, at most three of them.
func describe(list []process) string {
	const most = 3
	var names []string
	for _, p := range list[:min(most, len(list))] {
		// Programs choose their names: quote them.
		names = append(names, fmt.Sprintf("%q (pid %d)", p.name(), p.pid))
	}
	text := strings.Join(names, ", ")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
