//go:build unix

package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSignalDuringStart: a signal ends every command that reads a pipe with a silent writer. Only a seed that ends in good order prints
// that, and nothing else.
func TestSignalDuringStart(t *testing.T) {
	nexar := copiedProgram(t, "nexar")
	for name, test := range map[string]struct {
		variable string // has the path of the pipe; empty: it is the last argument
		args     []string
	}{
		"token of a seed":       {tokenFileVariable, []string{"seed", "--world", "2", "--listen", "127.0.0.1:0"}},
		"token of the seeds":    {"", []string{"seed", "--world", "2", "--state-dir", t.TempDir(), "--peers", "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003", "--advertise", "127.0.0.1:7001", "--peer-token-file"}},
		"key of a CA":           {"", []string{"seed", "--world", "2", "--listen", "127.0.0.1:0", "--ca-cert", "none", "--ca-key"}},
		"token of ranks":        {tokenFileVariable, []string{"run", "--seed", "127.0.0.1:1", "--", "true"}},
		"token of status":       {tokenFileVariable, []string{"status", "--seed", "127.0.0.1:1"}},
		"CA of status":          {"NEXAR_CA_FILE", []string{"status", "--seed", "127.0.0.1:1"}},
		"token of bench":        {tokenFileVariable, []string{"bench"}},
		"token of doctor":       {tokenFileVariable, []string{"doctor"}},
		"model of a simulation": {"", []string{"simulate", "--model"}},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("%s/%v", name, sig), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "pipe")
				if err := syscall.Mkfifo(path, 0o600); err != nil {
					t.Fatal(err)
				}
				var log bytes.Buffer
				cmd := exec.CommandContext(t.Context(), nexar, test.args...)
				cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "NEXAR_SEEDS=127.0.0.1:1", tokenVariable+"=hzl2-2hyn-oph4-hers-r7qt-szch-goto-bef7-fal7-bhc6-q2dj-5lq2-67na")
				switch test.variable {
				case "":
					cmd.Args = append(cmd.Args, path)
				case tokenFileVariable:
					cmd.Env = append(cmd.Env, tokenVariable+"=")
					fallthrough
				default:
					cmd.Env = append(cmd.Env, test.variable+"="+path)
				}
				cmd.Stdout, cmd.Stderr = &log, &log
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(path, os.O_WRONLY, 0) // The command has opened it for reading.
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				err = cmd.Wait()
				status, want := cmd.ProcessState.Sys().(syscall.WaitStatus), ""
				if status.Exited() && test.args[0] == "seed" {
					want = fmt.Sprintf("ended by a signal: %v\n", sig)
				}
				if status.ExitStatus() != 128+int(sig) && (!status.Signaled() || status.Signal() != sig) || log.String() != want {
					t.Errorf("the status is %v (%v), want the end by the signal %v with the output %q\n%s", cmd.ProcessState, err, sig, want, log.String())
				}
			})
		}
	}
}
