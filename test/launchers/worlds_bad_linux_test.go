package launchers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// ranks starts the test binary once for each list of variables, as launchers that tell hosts apart do, and returns the outputs when all have ended.
func ranks(t *testing.T, common []string, each ...[]string) []string {
	t.Helper()
	outs := make([]string, len(each))
	var all sync.WaitGroup
	for i, vars := range each {
		all.Go(func() {
			cmd := asWorld(command(t, []string{self(t)}), slices.Concat(common, vars)...)
			out, err := cmd.CombinedOutput()
			outs[i] = fmt.Sprintf("%s%v", out, err)
		})
	}
	all.Wait()
	return outs
}

// torchVars returns variables of torchrun. Without LOCAL_WORLD_SIZE, ranks can be on different hosts.
func torchVars(rank, size int) []string {
	return []string{fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", size)}
}

// master returns the variables that torchrun sets on all ranks.
func master(t *testing.T) []string {
	t.Helper()
	return []string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + freePort(t), "NEXAR_FORM_TIMEOUT_SECS=10", token()}
}

// says requires that an output matches a pattern.
func says(t *testing.T, out, pattern string) {
	t.Helper()
	if !regexp.MustCompile("(?s)" + pattern).MatchString(out) {
		t.Errorf("the output does not match %q:\n%s", pattern, out)
	}
}

// Ranks that contradict each other get errors that say how.
func TestContradictions(t *testing.T) {
	t.Parallel()
	t.Run("two say 2 of 4", func(t *testing.T) {
		t.Parallel()
		outs := ranks(t, master(t), torchVars(0, 4), torchVars(1, 4), torchVars(2, 4), torchVars(2, 4))
		says(t, outs[2]+outs[3], `seed 127\.0\.0\.1:2\d{4} refused this node: rank not available: 2 is already taken by`)
		for _, out := range outs[:2] {
			says(t, out, `did not form.* of 4 nodes .*missing \d \(rank [^)]*3\)`)
		}
	})
	t.Run("3 of 2", func(t *testing.T) {
		t.Parallel()
		says(t, ranks(t, master(t), torchVars(3, 2))[0], "the rank is 3, but the size is 2: ranks are below the size")
	})
	t.Run("sizes on several hosts", func(t *testing.T) {
		t.Parallel()
		outs := ranks(t, master(t), torchVars(0, 2), torchVars(1, 3))
		says(t, outs[1], `another size of the world: this process has been started as one of 3, the seed at 127\.0\.0\.1:2\d{4} waits for a world of 2`)
		says(t, outs[0], "the world did not form")
	})
	t.Run("sizes on one host", func(t *testing.T) {
		t.Parallel()
		outs := ranks(t, master(t), append(torchVars(0, 2), "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=0"), append(torchVars(1, 3), "LOCAL_WORLD_SIZE=3", "LOCAL_RANK=1"))
		says(t, outs[1], "rank 0 has been told that the world has 2 processes, rank 1 that it has 3: start all processes with the same number")
	})
	local := func(rank int) []string {
		return append(torchVars(rank, 2), "LOCAL_WORLD_SIZE=2", fmt.Sprint("LOCAL_RANK=", rank))
	}
	t.Run("a token on some ranks", func(t *testing.T) {
		t.Parallel()
		outs := ranks(t, master(t), local(0), append(local(1), "NEXAR_CLUSTER_TOKEN="))
		says(t, outs[1], "rank 0 has a token and rank 1 has none")
	})
	t.Run("two say 0 of 2", func(t *testing.T) {
		t.Parallel()
		outs := ranks(t, master(t), local(0), local(0))
		says(t, outs[0]+outs[1], `process \d+ of this host says that it is the one of job .* that runs seed 0: two processes have the same rank`)
	})
}

// A master that never appears is an error that says where the rank has looked, and for how long.
func TestMasterThatNeverAppears(t *testing.T) {
	t.Parallel()
	out := ranks(t, append(master(t), "NEXAR_FORM_TIMEOUT_SECS=5"), torchVars(1, 2))[0]
	says(t, out, `did not form within 5s: no seed could be reached in \d+ attempts; is one running\? 127\.0\.0\.1:2\d{4} \((nothing listens there|no answer)\), 127`)
}

// initialized are the answers of a process manager until the fence.
var initialized = []string{
	"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
	"cmd=my_kvsname kvsname=space\n", "cmd=appnum appnum=0\n", "cmd=put_result rc=0\n",
}

// A process manager that does not answer, or not in its protocol, is an error that names the call.
func TestPMIPeers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		answers []string // to each request
		wants   string
	}{
		{"garbage", []string{"\x00\xff{}\n"}, "PMI-1 init: byte 0 is 0x00: expected printable ASCII: expected response_to_init, read"},
		{"silence", nil, "PMI-1 init: the world did not form within 2s: expected response_to_init"},
		{"silence before others have come", initialized, "PMI-1 barrier_in: the world did not form within 2s: expected barrier_out"},
		{"the end", []string{""}, "PMI-1 init: the process manager has closed the connection"},
	} {
		t.Run(test.name, func(t *testing.T) {
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			manager, client := os.NewFile(uintptr(pair[0]), "manager"), os.NewFile(uintptr(pair[1]), "client")
			cmd := asWorld(command(t, []string{self(t)}), "PMI_FD=3", "PMI_RANK=0", "PMI_SIZE=2", "NEXAR_FORM_TIMEOUT_SECS=2")
			cmd.ExtraFiles = []*os.File{client}
			go serve(manager, test.answers)
			out, err := cmd.CombinedOutput()
			client.Close()
			manager.Close()
			if err == nil {
				t.Error("it has joined")
			}
			says(t, string(out), test.wants)
		})
	}
}

// serve answers requests, the last one by the end of the connection if it is "", and stays silent after the last.
func serve(manager *os.File, answers []string) {
	r := bufio.NewReader(manager)
	for _, answer := range answers {
		if _, err := r.ReadString('\n'); err != nil {
			return
		}
		if answer == "" {
			manager.Close()
			return
		}
		_, _ = io.WriteString(manager, answer)
	}
}
