//go:build linux || darwin || freebsd

package launch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
)

// connected returns the environment of a process with a connection to a process manager, and the end of the process manager.
func connected(t *testing.T, vars map[string]string) (Environment, *os.File) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(pair[1])
	if err := syscall.SetNonblock(pair[1], true); err != nil {
		t.Fatal(err)
	}
	manager := os.NewFile(uintptr(pair[1]), "manager")
	t.Cleanup(func() { manager.Close() })
	env := Environment{Vars: map[string]string{"PMI_FD": strconv.Itoa(pair[0]), "PMI_RANK": "1", "PMI_SIZE": "4"}}
	maps.Copy(env.Vars, vars)
	return env, manager
}

// A step of a scripted process manager: a request that it expects, byte for byte, and its answer.
type step struct{ request, answer string }

// script lets a process manager execute the steps. Then it closes the connection if its last answer is "", else it waits.
func script(t *testing.T, manager *os.File, steps []step) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() {
		manager.Close()
		<-done
	})
	go func() {
		defer close(done)
		for _, s := range steps {
			got := make([]byte, len(s.request))
			if n, err := io.ReadFull(manager, got); err != nil || string(got) != s.request {
				if !errors.Is(err, os.ErrClosed) {
					t.Errorf("the process manager read %q (%v): expected %q", got[:n], err, s.request)
				}
				manager.Close()
				return
			}
			if s.answer == "" {
				manager.Close()
				return
			}
			if _, err := io.WriteString(manager, s.answer); err != nil {
				t.Errorf("%q: %v", s.answer, err)
				return
			}
		}
	}()
}

// mpich and slurm return a message of PMI-2 with its length, as they write it.
func mpich(text string) string { return fmt.Sprintf("%6d%s", len(text), text) }
func slurm(text string) string { return fmt.Sprintf("%-6d%s", len(text), text) }

const refuses2 = "cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0\n"

// opening returns the requests of OpenPMI, with answers as those of MPICH, Intel MPI or Slurm.
func opening(version int) []step {
	if version == 1 {
		return []step{
			{"cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n"},
			{"cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"},
			{"cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=kvs_7_0\n"},
			{"cmd=get_appnum\n", "cmd=appnum appnum=0\n"},
		}
	}
	return []step{
		{"cmd=init pmi_version=1 pmi_subversion=1\n", refuses2},
		{"cmd=init pmi_version=2 pmi_subversion=0\n", "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"},
		{"    49cmd=fullinit;pmijobid=0;pmirank=1;threaded=FALSE;", slurm("cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=4;appnum=-1;debugged=FALSE;pmiverbose=0;")},
	}
}

// steps returns the opening and the further steps of a version.
func steps(version int, one, two []step) []step {
	if version == 1 {
		return append(opening(1), one...)
	}
	return append(opening(2), two...)
}

// both runs a test for each version.
func both(t *testing.T, test func(t *testing.T, version int)) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("PMI-%d", version), func(t *testing.T) { test(t, version) })
	}
}

// open connects to a scripted process manager.
func open(t *testing.T, steps []step) *PMIClient {
	t.Helper()
	env, manager := connected(t, nil)
	script(t, manager, steps)
	p, err := OpenPMI(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close() })
	return p
}

// A manager is a process manager of several ranks that keeps their values.
type manager struct {
	mu      sync.Mutex
	values  map[string]string
	fence   sync.WaitGroup
	fences  atomic.Int32 // the number of calls
	version int
}

// serve answers the requests of one rank, a byte at a time.
func (m *manager) serve(t *testing.T, conn *os.File) {
	r := bufio.NewReaderSize(iotest.OneByteReader(conn), maxPMIMessage)
	version := 1
	for {
		request, err := decode(r, version)
		if err != nil {
			t.Errorf("%v: %q", err, request.raw)
			return
		}
		var answer outgoing
		switch request.cmd {
		case "init":
			asked := request.get("pmi_version")
			answer = outgoing{"response_to_init", []field{{"rc", "0"}, {"pmi_version", strconv.Itoa(m.version)}, {"pmi_subversion", "0"}}}
			if asked != strconv.Itoa(m.version) {
				answer.fields[0].value = "1"
			}
		case "fullinit":
			answer = outgoing{"fullinit-response", []field{{"rank", request.get("pmirank")}, {"size", "4"}}}
		case "get_maxes":
			answer = outgoing{"maxes", []field{{"keylen_max", "64"}, {"vallen_max", "1024"}}}
		case "get_my_kvsname":
			answer = outgoing{"my_kvsname", []field{{"kvsname", "kvs"}}}
		case "get_appnum":
			answer = outgoing{"appnum", []field{{"appnum", "-1"}}}
		case "put", "kvs-put":
			m.mu.Lock()
			m.values[request.get("key")] = request.get("value")
			m.mu.Unlock()
			answer = outgoing{map[int]string{1: "put_result", 2: "kvs-put-response"}[m.version], nil}
		case "get", "kvs-get":
			m.mu.Lock()
			value := m.values[request.get("key")]
			m.mu.Unlock()
			answer = outgoing{map[int]string{1: "get_result", 2: "kvs-get-response"}[m.version], []field{{"value", value}}}
		case "barrier_in", "kvs-fence":
			m.fences.Add(1)
			m.fence.Done()
			m.fence.Wait()
			answer = outgoing{map[int]string{1: "barrier_out", 2: "kvs-fence-response"}[m.version], nil}
		case "finalize":
			answer = outgoing{map[int]string{1: "finalize_ack", 2: "finalize-response"}[m.version], nil}
		default:
			t.Errorf("unknown request %q", request.raw)
			return
		}
		for _, b := range []byte(answer.encode(version)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				t.Error(err)
				return
			}
		}
		if request.cmd == "init" && answer.fields[0].value == "0" {
			version = m.version
		}
		if request.cmd == "finalize" {
			return
		}
	}
}

// outgoing is an answer of a manager.
type outgoing = request

func TestPMIExchange(t *testing.T) {
	both(t, func(t *testing.T, version int) {
		const ranks = 4
		m := &manager{values: map[string]string{}, version: version}
		m.fence.Add(ranks)
		var wait sync.WaitGroup
		for rank := range ranks {
			env, conn := connected(t, map[string]string{"PMI_RANK": strconv.Itoa(rank)})
			wait.Go(func() { m.serve(t, conn) })
			wait.Go(func() {
				if err := exchange(t.Context(), env, rank, ranks); err != nil {
					t.Error(err)
					conn.Close()
				}
			})
		}
		wait.Wait()
	})
}

// exchange puts the value of a rank and gets those of all.
func exchange(ctx context.Context, env Environment, rank, ranks int) error {
	p, err := OpenPMI(ctx, env)
	if err != nil {
		return err
	}
	if err := p.Put(ctx, fmt.Sprintf("rank-%d", rank), fmt.Sprintf("value=%d", rank)); err != nil {
		return err
	}
	if err := p.Fence(ctx); err != nil {
		return err
	}
	for other := range ranks {
		value, err := p.Get(ctx, fmt.Sprintf("rank-%d", other))
		if err != nil || value != fmt.Sprintf("value=%d", other) {
			return fmt.Errorf("rank %d got %q: %w", rank, value, err)
		}
	}
	return p.Close()
}

// contains checks that err is an error of bounded, printable text with all parts.
func contains(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}
	text := err.Error()
	if len(text) > 1000 || printable(text) != nil {
		t.Errorf("an error of %d bytes: %.1000q", len(text), text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s\ndoes not contain %q", text, part)
		}
	}
}
