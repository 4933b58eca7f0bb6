package cluster

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

// otherUID is the UID of a user other than root. The test runs as root.
const otherUID = 65534

// An otherUser launches processes of another user on this host.
type otherUser struct{ exe string }

// newOtherUser copies the test binary to a directory that another user can read.
func newOtherUser(t *testing.T) otherUser {
	t.Helper()
	require.Root(t)
	dir, err := os.MkdirTemp("", "nexar-cluster") //nolint:usetesting // other users cannot enter the parents of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	u := otherUser{exe: filepath.Join(dir, "worker")}
	out, err := os.OpenFile(u.exe, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err2 := out.Close(); err == nil {
		err = err2
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (u otherUser) start(cmd *exec.Cmd) error {
	cmd.Path, cmd.Dir = u.exe, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUID, Gid: otherUID}}
	return cmd.Start()
}

// Processes of two users on one host do not share memory: they form a world over QUIC and TCP, encrypted,
// and the dialing node reports the reason. Processes of one user share memory.
func TestTwoUsers(t *testing.T) {
	t.Parallel()
	other := newOtherUser(t)
	for name, foreign := range map[string][]bool{"other user dials": {false, false, true}, "own user dials": {true, false, false}} {
		t.Run(name, func(t *testing.T) {
			c := newWorkerSet(t)
			s := startLocalSeed(t, len(foreign), nexar.SeedConfig{Token: c.token})
			var workers []*worker
			for rank, isForeign := range foreign {
				var on launcher
				if isForeign {
					on = other
				}
				workers = append(workers, c.start(on, fmt.Sprint("rank ", rank),
					"NEXAR_SEEDS="+s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank)))
			}
			mustSucceed(t, runAll(workers, command{Do: "join"}))
			mustSucceed(t, runAll(workers, command{Do: "check"}))
			for rank, r := range runAll(workers, command{Do: "peers"}) {
				wantPeers(t, rank, r, len(foreign)-1)
				for _, p := range r.Peers {
					checkUsers(t, rank, p, foreign[rank] == foreign[p.Rank])
				}
			}
		})
	}
}

// checkUsers checks the path of a rank to a process of the same or another user. The higher rank dials and
// knows the reason.
func checkUsers(t *testing.T, rank int, p nexar.Peer, same bool) {
	t.Helper()
	path, bulk, why := "quic", "tcp+tls", "belongs to user"
	switch {
	case same:
		path, bulk, why = "shm", "shm", "same host"
	case rank < p.Rank:
		why = ""
	}
	if p.Transport != path || p.BulkTransport != bulk || p.Encrypted == same || !strings.Contains(p.Reason, why) {
		t.Errorf("rank %d reaches a rank (of the same user: %t) by %+v, want %s, %s, %q", rank, same, p, path, bulk, why)
	} else {
		t.Logf("rank %d reaches rank %d over %s and %s: %s", rank, p.Rank, p.Transport, p.BulkTransport, p.Reason)
	}
}
