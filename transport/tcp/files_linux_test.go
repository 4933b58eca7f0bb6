package tcp

import (
	"net"
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

func starve(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	if err := nodes[0].OutOfFiles(); err != nil {
		t.Errorf("before: %v", err)
	}
	const limit = 100
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	fill := func() {
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				return
			}
			files = append(files, f)
		}
	}
	fill()
	if _, err := nodes[0].Dial(t.Context(), nodes[1].Addr(), nodes[1].name); err == nil {
		t.Error("a socket was dialed without a file descriptor")
	}
	wantOutOfFiles(t, nodes[0])
	files[0].Close() // for the socket that dials; none is left for the accepted one
	sock, err := net.DialTimeout("tcp", nodes[1].Addr(), soon)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	for end := time.Now().Add(soon); nodes[1].OutOfFiles() == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	wantOutOfFiles(t, nodes[1])
	for _, f := range files {
		f.Close()
	}
}

func wantOutOfFiles(t *testing.T, user transport.FileUser) {
	t.Helper()
	const want = "this process has too many open files: its limit is 100 (ulimit -n)"
	if err := user.OutOfFiles(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
