//go:build unix

package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// A timeout names the ranks that the call waits for, and their last calls with times: one is
// stopped and does not answer; one is in no collective; one is in an earlier one, which waits for
// both.
func TestTimeoutSaysWhereOthersAre(t *testing.T) {
	t.Parallel()
	const (
		behind, hasty, idle, stopped = 0, 1, 2, 3

		limit = 8 * time.Second
		apart = 300 * time.Millisecond // the others from the barrier, and rank 1 from rank 0
	)
	c := newCrew(t)
	s := seedHere(t, 4, nexar.SeedConfig{Token: c.token})
	for rank := range 4 {
		timeout := "60"
		if rank == hasty {
			timeout = fmt.Sprint(limit.Seconds())
		}
		c.hire(nil, fmt.Sprint("rank ", rank), "NEXAR_SEEDS="+s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank),
			"NEXAR_TRANSPORTS=tcp,quic", "NEXAR_HEARTBEAT_TIMEOUT_SECS=60", "NEXAR_COLLECTIVE_TIMEOUT_SECS="+timeout)
	}
	team := c.workers
	ok(t, all(team, order{Do: "join"}))
	crossed := all(team, order{Do: "loop", What: "barrier", Sets: 1})
	ok(t, crossed)
	team[stopped].kill(syscall.SIGSTOP)
	defer team[stopped].kill(syscall.SIGCONT)
	time.Sleep(apart)

	waiting := team[behind].start(order{Do: "loop", What: "reduce", N: 10, Sets: 1}) // to rank 0
	time.Sleep(apart)
	ok(t, []report{team[hasty].do(order{Do: "loop", What: "reduce", N: 10, Sets: 1})})
	r := team[hasty].do(order{Do: "loop", What: "all_reduce", N: 10, Sets: 1})
	if r.Failure == nil || !r.Failure.Deadline {
		t.Fatalf("%v, want a timeout", r.Failure)
	}
	t.Log(r.Failure.Text)
	said := regexp.MustCompile(`^nexar: all_reduce: #3 timed out after 8s, waiting for ` +
		`rank 2 \(last called barrier #1, which ended (\S+) ago\), rank 3 \(not heard of\), ` +
		`rank 0 \(in reduce #2 \(10 × int64, sum, root 0\) for (\S+)\)$`).FindStringSubmatch(r.Failure.Text)
	if said == nil {
		t.Fatalf("it says %q", r.Failure.Text)
	}
	vain := team[behind].await(waiting)
	// Answers are rounded, and on a busy machine the last ones may be some seconds old. The
	// barrier ended before the pauses, and an order begins before its call.
	const early = 100 * time.Millisecond
	if ended, err := time.ParseDuration(said[1]); err != nil || ended < 2*apart-early || ended > r.At.Sub(began(crossed[idle]))+early {
		t.Errorf("the barrier is said to have ended %v ago, it was ordered %v before the timeout: %v", ended, r.At.Sub(began(crossed[idle])), err)
	}
	if in, err := time.ParseDuration(said[2]); err != nil || in <= 0 || in > r.At.Sub(began(vain))+early {
		t.Errorf("the reduce is said to have begun %v ago, it was ordered %v before the timeout: %v", in, r.At.Sub(began(vain)), err)
	}
	// Who waited in vain as well is told the same.
	if f := vain.Failure; f == nil || !f.Revoked || !strings.Contains(f.Text, "rank 3 (not heard of)") {
		t.Errorf("rank %d: %v, want that rank %d has given up, and the rank that it has waited for", behind, f, hasty)
	}
}

// began says when the order of r has begun.
func began(r report) time.Time { return r.At.Add(-r.Took) }
