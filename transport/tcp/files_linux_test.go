package tcp

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// starvedEnv makes the test binary a process that may open few files.
const starvedEnv = "NEXAR_TCP_TEST_STARVED"

// TestOutOfFiles checks that a transport reports when it could not dial or accept for lack of
// file descriptors. Since the limit is per process, it runs in a separate process.
func TestOutOfFiles(t *testing.T) {
	if os.Getenv(starvedEnv) != "" {
		starve(t)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^TestOutOfFiles$", "-test.v")
	child.Env = append(os.Environ(), starvedEnv+"=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// filesMax is below the number of each descriptor that is not open yet. A process that has opened
// all descriptors below a larger limit instead would get one if its runtime closed another.
const filesMax = 3

func starve(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	if err := nodes[0].OutOfFiles(); err != nil {
		t.Errorf("before: %v", err)
	}
	client, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(client)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: filesMax, Max: filesMax}); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[0].Dial(t.Context(), nodes[1].Addr(), nodes[1].name); err == nil {
		t.Error("a socket was dialed without a file descriptor")
	}
	wantOutOfFiles(t, nodes[0])
	port := netip.MustParseAddrPort(nodes[1].Addr()).Port()
	if err := syscall.Connect(client, &syscall.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); nodes[1].OutOfFiles() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	wantOutOfFiles(t, nodes[1])
}

func wantOutOfFiles(t *testing.T, user transport.FileUser) {
	t.Helper()
	want := fmt.Sprintf("this process has too many open files: its limit is %d (ulimit -n)", filesMax)
	if err := user.OutOfFiles(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
