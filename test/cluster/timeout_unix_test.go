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

// A timeout error names the late ranks and their last calls with times. Here one rank is stopped and
// does not answer, one is in no collective, and one is in an earlier collective that waits for both.
func TestTimeoutNamesCallsOfOthers(t *testing.T) {
	t.Parallel()
	const (
		behind, first, idle, stopped = 0, 1, 2, 3

		limit = 8 * time.Second
		apart = 300 * time.Millisecond // between the barrier, the call of rank 0 and the call of rank 1
	)
	c := newWorkerSet(t)
	s := startLocalSeed(t, 4, nexar.SeedConfig{Token: c.token})
	for rank := range 4 {
		timeout := "60"
		if rank == first {
			timeout = fmt.Sprint(limit.Seconds())
		}
		c.start(nil, fmt.Sprint("rank ", rank), "NEXAR_SEEDS="+s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank),
			"NEXAR_TRANSPORTS=tcp,quic", "NEXAR_HEARTBEAT_TIMEOUT_SECS=60", "NEXAR_COLLECTIVE_TIMEOUT_SECS="+timeout)
	}
	workers := c.workers
	mustSucceed(t, runAll(workers, command{Do: "join"}))
	crossed := runAll(workers, command{Do: "loop", Op: "barrier", Rounds: 1})
	mustSucceed(t, crossed)
	workers[stopped].kill(syscall.SIGSTOP)
	defer workers[stopped].kill(syscall.SIGCONT)
	time.Sleep(apart)

	waiting := workers[behind].start(command{Do: "loop", Op: "reduce", N: 10, Rounds: 1}) // to rank 0
	time.Sleep(apart)
	mustSucceed(t, []result{workers[first].do(command{Do: "loop", Op: "reduce", N: 10, Rounds: 1})})
	r := workers[first].do(command{Do: "loop", Op: "all_reduce", N: 10, Rounds: 1})
	if r.Failure == nil || !r.Failure.Deadline {
		t.Fatalf("%v, want a timeout", r.Failure)
	}
	t.Log(r.Failure.Text)
	said := regexp.MustCompile(`^nexar: all_reduce: #3 timed out after 8s, waiting for ` +
		`rank 2 \(last called barrier #1, which ended (\S+) ago\), rank 3 \(not heard of\), ` +
		`rank 0 \(in reduce #2 \(10 × int64, sum, root 0\) for (\S+)\)$`).FindStringSubmatch(r.Failure.Text)
	if said == nil {
		t.Fatalf("unexpected error text %q", r.Failure.Text)
	}
	vain := workers[behind].await(waiting)
	// Answers are rounded, and on a busy machine they may be some seconds old. The barrier ended
	// before the pauses, and a command begins before its call.
	const early = 100 * time.Millisecond
	if ended, err := time.ParseDuration(said[1]); err != nil || ended < 2*apart-early || ended > r.At.Sub(startedAt(crossed[idle]))+early {
		t.Errorf("the error reports that the barrier ended %v ago, its command began %v before the timeout: %v", ended, r.At.Sub(startedAt(crossed[idle])), err)
	}
	if in, err := time.ParseDuration(said[2]); err != nil || in <= 0 || in > r.At.Sub(startedAt(vain))+early {
		t.Errorf("the error reports that the reduce began %v ago, its command began %v before the timeout: %v", in, r.At.Sub(startedAt(vain)), err)
	}
	// The error of the rank behind has the same cause.
	if f := vain.Failure; f == nil || !f.Revoked || !strings.Contains(f.Text, "rank 3 (not heard of)") {
		t.Errorf("rank %d: %v, want a revocation by rank %d that names rank 3", behind, f, first)
	}
}

// startedAt returns the time at which the command of r began.
func startedAt(r result) time.Time { return r.At.Add(-r.Took) }
