//go:build linux || darwin || freebsd

package meet

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stateDirVariable makes the test binary a process that has a StateDir until its standard input ends.
const stateDirVariable = "MEET_TEST_STATE_DIR"

// A process that is killed leaves its directory, which the next one removes. Those of processes that live, and of others, stay.
func TestStateDirOfAKilledProcess(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	start := func() (path string, kill func()) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env, cmd.Stderr = append(os.Environ(), stateDirVariable+"=1"), os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line), func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			in.Close()
		}
	}
	exists := func(path string) bool {
		_, err := os.Stat(filepath.Join(path, "log"))
		return err == nil
	}
	lives, endLiving := start()
	defer endLiving()
	killed, kill := start()
	kill()
	if !exists(killed) || !exists(lives) {
		t.Fatalf("%s and %s do not both exist after a kill", killed, lives)
	}
	other := filepath.Join(temp, "nexar-other")
	elsewhere := filepath.Join(temp, "elsewhere")
	for _, dir := range []string{other, elsewhere} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(elsewhere, filepath.Join(temp, statePrefix+"link")); err != nil {
		t.Fatal(err)
	}
	d, err := NewStateDir()
	if err != nil {
		t.Fatal(err)
	}
	if exists(killed) || !exists(lives) || !exists(other) || !exists(elsewhere) {
		t.Errorf("killed: %v, lives: %v, of another program: %v, elsewhere: %v; want that only the first is removed", exists(killed), exists(lives), exists(other), exists(elsewhere))
	}
	if _, err := os.Lstat(filepath.Join(temp, statePrefix+"link")); err != nil {
		t.Errorf("a link, which no process of nexar makes: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
		t.Errorf("the directory after Close: %v", err)
	}
}

func init() {
	if os.Getenv(stateDirVariable) == "" {
		return
	}
	if err := haveStateDir(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// haveStateDir is the process of stateDirVariable.
func haveStateDir() error {
	d, err := NewStateDir()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.Path, "log"), nil, 0o600); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(d.Path + "\n"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// The error of a process without a folder for temporary files names that.
func TestStateDirNowhere(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	if d, err := NewStateDir(); !os.IsNotExist(err) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v, error %v, want that there is no folder", d, err)
	}
}
