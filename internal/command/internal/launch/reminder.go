package launch

import (
	"fmt"
	"time"
)

// remindAfter is the time until Run names the children that still run although the others, at least as many, have succeeded.
// They may be stopped, or hang. The time doubles from one reminder to the next.
const remindAfter = 10 * time.Second

// remind names the children that still run, if it is time: some time after a request to end, or if the others have succeeded.
func (s *supervisor) remind(now time.Time) {
	left := len(s.running) - len(s.succeeded)
	if s.stage != healthy || left == 0 || now.Sub(s.reminded) < s.pause {
		return
	}
	var text string
	switch {
	case s.requested > 0:
		text = fmt.Sprintf("%s still running after request %d to end; request %d kills", s.names(), s.requested, requestsMax)
	case s.cfg.Survives == nil && left <= len(s.succeeded):
		text = "waiting for " + s.names() + ": all others have exited with status 0"
	default:
		return
	}
	var stopped []string
	for i, c := range s.running {
		if !c.ended && (process{c.cmd.Process.Pid}).stopped() {
			stopped = append(stopped, fmt.Sprintf("%s (pid %d)", s.cfg.Children[i].Name(), c.cmd.Process.Pid))
		}
	}
	if len(stopped) > 0 {
		text += "; stopped: " + list(stopped)
	}
	s.reminded, s.pause = now, 2*s.pause
	s.say(text)
}
