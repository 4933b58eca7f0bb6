package launchers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/launch"
)

// A said is the result of a rank, which prints it.
type said struct {
	Process  launch.Process
	Hostname string
	Values   []string // of all ranks
	Missing  string   // the error of the value that no rank has put
}

// exchangeLimit ends a rank that waits for others in vain.
const exchangeLimit = time.Minute

// exchange is the role of a rank that puts a value, gets those of all, and prints its result.
func exchange(env launch.Environment) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), exchangeLimit)
	defer cancel()
	process, _, err := launch.Find(env, "")
	if err != nil {
		return err
	}
	pmi, err := launch.OpenPMI(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pmi.Close()) }()
	out := said{Process: process, Hostname: env.Hostname}
	for round := range 2 {
		key := fmt.Sprintf("rank-%d-%d", round, process.Rank)
		if err := pmi.Put(ctx, key, value(round, process.Rank)); err != nil {
			return err
		}
		if err := pmi.Fence(ctx); err != nil {
			return err
		}
		out.Values = out.Values[:0]
		for rank := range process.Size {
			got, err := pmi.Get(ctx, fmt.Sprintf("rank-%d-%d", round, rank))
			if err != nil {
				return err
			}
			if got != value(round, rank) {
				return fmt.Errorf("the value of rank %d has %d bytes, and is not what it has put", rank, len(got))
			}
			out.Values = append(out.Values, got[:5])
		}
	}
	if process.Rank == 0 && os.Getenv(missingVariable) != "" {
		_, err := pmi.Get(ctx, "nothing")
		if !errors.Is(err, launch.ErrNoValue) {
			return fmt.Errorf("the error of a missing value: %w", err)
		}
		out.Missing = err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// survive is the role of ranks of one host that go on after rank 1 has been killed, when all have closed their connections.
func survive(env launch.Environment) error {
	ctx, cancel := context.WithTimeout(context.Background(), exchangeLimit)
	defer cancel()
	process, _, err := launch.Find(env, "")
	if err != nil {
		return err
	}
	pmi, err := launch.OpenPMI(ctx, env)
	if err != nil {
		return err
	}
	if err := pmi.Put(ctx, fmt.Sprintf("pid-%d", process.Rank), strconv.Itoa(env.PID)); err != nil {
		return err
	}
	if err := pmi.Fence(ctx); err != nil {
		return err
	}
	text, err := pmi.Get(ctx, "pid-1")
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if err := pmi.Fence(ctx); err != nil { // All know the process.
		return err
	}
	if err := pmi.Close(); err != nil {
		return err
	}
	if process.Rank == 1 {
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	for alive(pid) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second) // A launcher that ends all ranks does so now.
	_, err = fmt.Println("survivor", process.Rank)
	return err
}

// alive reports whether a process runs. Intel MPI's process manager reaps no process before all have ended.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// value returns the value of a rank. In the second round it has all allowed bytes, and the greatest length that all process managers store.
func value(round, rank int) string {
	text := fmt.Sprintf("%02d=%02d", round, rank)
	if round == 0 {
		return text
	}
	for c := byte('!'); c <= '~'; c++ {
		if c != ';' && c != '\\' {
			text += string(c)
		}
	}
	return text + strings.Repeat("v", 800-len(text))
}

// withPMI2 connects the environment to a relay that refuses PMI-1, as if the process manager offered only PMI-2.
func withPMI2(env launch.Environment) error {
	fd, err := strconv.Atoi(env.Vars["PMI_FD"])
	if err != nil {
		return err
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	syscall.CloseOnExec(pair[1])
	manager, client := os.NewFile(uintptr(fd), "PMI_FD"), os.NewFile(uintptr(pair[1]), "relay")
	env.Vars["PMI_FD"] = strconv.Itoa(pair[0])
	go func() {
		r := bufio.NewReader(client)
		if line, err := r.ReadString('\n'); err != nil || line != "cmd=init pmi_version=1 pmi_subversion=1\n" {
			fmt.Fprintf(os.Stderr, "the first request is %q (%v): expected PMI-1\n", line, err)
			os.Exit(1)
		}
		_, _ = io.WriteString(client, "cmd=response_to_init rc=-1 pmi_version=2 pmi_subversion=0\n")
		go func() { _, _ = io.Copy(client, manager) }()
		_, _ = io.Copy(manager, r)
	}()
	return nil
}
