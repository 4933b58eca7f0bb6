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

// nobody is a user who is not the one that runs the tests.
const nobody = 65534

// An otherUser is a place on this host where processes belong to another
// user.
type otherUser struct{ exe string }

// newOtherUser puts this program where that user can run it.
func newOtherUser(t *testing.T) otherUser {
	t.Helper()
	require.Root(t)
	dir, err := os.MkdirTemp("", "nexar-cluster") //nolint:usetesting // the parents of t.TempDir are closed to others
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd.Start()
}

// Two users of one host do not share memory with each other: their processes
// form a world in which they talk over QUIC and TCP, encrypted, and each of them
// says why. Those of one user do share it.
func TestTwoUsers(t *testing.T) {
	t.Parallel()
	theirs := newOtherUser(t)
	for name, foreign := range map[string][]bool{"theirs dials": {false, false, true}, "ours dial": {true, false, false}} {
		t.Run(name, func(t *testing.T) {
			c := newCrew(t)
			s := seedHere(t, len(foreign), nexar.SeedConfig{Token: c.token})
			var team []*worker
			for rank, other := range foreign {
				var at place
				if other {
					at = theirs
				}
				team = append(team, c.hire(at, fmt.Sprint("rank ", rank),
					"NEXAR_SEEDS="+s.Addr(), "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank)))
			}
			ok(t, all(team, order{Do: "join"}))
			ok(t, all(team, order{Do: "check"}))
			for rank, r := range all(team, order{Do: "peers"}) {
				for _, p := range r.Peers {
					checkUsers(t, rank, p, foreign[rank] == foreign[p.Rank])
				}
			}
		})
	}
}

// checkUsers checks how a rank reaches a process of the same user, or of another
// one. It is the higher rank that dials, and can tell why.
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
