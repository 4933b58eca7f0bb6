//go:build unix

package cluster

import (
	"fmt"
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
	const text = "for rank 3, which has not answered for "
	late := r.Failure.Late
	if !strings.HasPrefix(r.Failure.Text, "nexar: all_reduce: timed out after 8s: Rank") || !strings.Contains(r.Failure.Text, text) || len(late) != 3 {
		t.Fatalf("%q, with %v, want a timeout with three ranks and %q", r.Failure.Text, late, text)
	}
	if l := late[0]; l.Rank != idle || !l.Answered || l.Active || l.Call.Op != "barrier" || l.Call.Seq != 1 {
		t.Errorf("%+v, want rank %d after its barrier", l, idle)
	}
	if l := late[1]; l.Rank != stopped || l.Answered {
		t.Errorf("%+v, want rank %d without an answer", l, stopped)
	}
	if l := late[2]; l.Rank != behind || !l.Active || l.Call.Op != "reduce" || l.Call.Seq != 2 {
		t.Errorf("%+v, want rank %d in reduce", l, behind)
	}
	vain := workers[behind].await(waiting)
	// Answers may be some seconds old on a busy machine. The barrier ended before the pauses, and a command begins before its call.
	const early = 100 * time.Millisecond
	if ended := late[0].Elapsed; ended < 2*apart-early || ended > r.At.Sub(startedAt(crossed[idle]))+early {
		t.Errorf("the error reports that the barrier ended %v ago, its command began %v before the timeout", ended, r.At.Sub(startedAt(crossed[idle])))
	}
	if in := late[2].Elapsed; in <= 0 || in > r.At.Sub(startedAt(vain))+early {
		t.Errorf("the error reports that the reduce began %v ago, its command began %v before the timeout", in, r.At.Sub(startedAt(vain)))
	}
	// The error of the rank behind has the same cause.
	if f := vain.Failure; f == nil || !f.Revoked || !strings.Contains(f.Text, text) {
		t.Errorf("rank %d: %v, want a revocation by rank %d with %q", behind, f, first, text)
	}
}

// startedAt returns the time at which the command of r began.
func startedAt(r result) time.Time { return r.At.Add(-r.Took) }
