package cluster

import (
	"regexp"
	"strings"
	"testing"
)

// site is the line of a program that waits.
var site = regexp.MustCompile(` \([^ ]+\.go:[0-9]+\)`)

// TestDeadlock: a rank that sends a long message and a rank in a barrier wait for each other. Both
// processes get an error that has both calls.
func TestDeadlock(t *testing.T) {
	for _, transports := range []string{"shm,tcp", "tcp"} {
		t.Run(transports, func(t *testing.T) {
			t.Parallel()
			c := newWorkerSet(t)
			workers := c.startWorld(2, "NEXAR_TRANSPORTS="+transports, "NEXAR_DEADLOCK_TIMEOUT=100ms")
			sent := workers[0].start(command{Do: "send", N: 1 << 20, Peer: 1, Tag: 7, Rounds: 1})
			inBarrier := workers[1].start(command{Do: "loop", Op: "barrier", Rounds: 1})
			for _, r := range []result{workers[0].await(sent), workers[1].await(inBarrier)} {
				const want = "Rank 0 waits in send to rank 1, which has been in barrier #1 for "
				if r.Failure == nil || !strings.Contains(site.ReplaceAllString(r.Failure.Text, ""), want) {
					t.Errorf("%v, want %q", r.Failure, want)
				}
			}
		})
	}
}
