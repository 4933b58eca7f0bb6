package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// otherUserID is a user other than the user of the tests.
const otherUserID = 65534

func TestNotHere(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a"})
	other := newNode(t, Config{Cluster: uniqueCluster(), Node: "b"})
	for _, addr := range []string{"unknown", other.Addr()} {
		start := time.Now()
		_, err := node.Dial(t.Context(), addr, addr)
		if !errors.Is(err, ErrNotLocal) {
			t.Errorf("dial %q: %v, want ErrNotLocal", addr, err)
		}
		t.Logf("refused after %v: %v", time.Since(start), err)
	}
}

func TestNameIsTaken(t *testing.T) {
	cfg := Config{Cluster: uniqueCluster(), Node: "a"}
	newNode(t, cfg)
	tr, err := New(cfg)
	if err == nil {
		tr.Close()
		t.Fatal("two nodes have the same name")
	}
	if !strings.Contains(err.Error(), "is taken") {
		t.Errorf("error %v does not report that the name is taken", err)
	}
}

// TestClientGoesAway: a client that closes the socket during the handshake is no reason for a warning: a node stops dialing
// when its peer has dialed it. Nor is the end of the node itself.
func TestClientGoesAway(t *testing.T) {
	for name, test := range map[string]struct{ greets, stays bool }{
		"before its hello": {}, "after its hello": {greets: true}, "the node closes": {stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var text strings.Builder
			log := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return text.Write(p)
			}), &slog.HandlerOptions{Level: slog.LevelDebug}))
			node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a", Log: log})
			sock := rawDial(t, node)
			if test.greets {
				fd, err := newEventFD()
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				// The node cannot answer, since the socket is closed before it has accepted it, or it can, and the conn ends.
				hello := hello{kind: kindHello, cluster: node.cfg.Cluster, from: "b", to: "a"}
				if err := sendMessage(sock, hello.append(nil), fd); err != nil {
					t.Fatal(err)
				}
			}
			if test.stays {
				defer sock.Close()
			} else {
				sock.Close()
			}
			if _, err := newNode(t, Config{Cluster: node.cfg.Cluster, Node: "c"}).Dial(t.Context(), "a", "a"); err != nil {
				t.Fatal(err)
			}
			node.Close() // It waits for the handshakes.
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(text.String(), "WARN") {
				t.Errorf("the log has a warning: %s", &text)
			}
		})
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// rawDial connects to the socket of a node and sends nothing.
func rawDial(t *testing.T, node *endpoint) *net.UnixConn {
	t.Helper()
	name := socketName(node.cfg.Cluster, node.cfg.Node)
	sock, err := net.DialUnix(network, nil, &net.UnixAddr{Net: network, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	return sock
}

// A badClient is refused.
type badClient struct {
	name  string
	hello func(node *endpoint, good hello) []byte
	files []int // instead of a peerEvent
	code  byte
	want  string // in the refusal
}

func badClients(memory, device int) []badClient {
	good := func(_ *endpoint, h hello) []byte { return h.append(nil) }
	change := func(f func(h *hello)) func(*endpoint, hello) []byte {
		return func(_ *endpoint, h hello) []byte {
			f(&h)
			return h.append(nil)
		}
	}
	return []badClient{
		{"garbage", func(*endpoint, hello) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }, nil, refusedOther, "not a hello"},
		{"a byte", func(*endpoint, hello) []byte { return []byte{0} }, nil, refusedOther, "not a hello"},
		{"a long message", func(*endpoint, hello) []byte { return make([]byte, 100_000) }, nil, refusedOther, "too large"},
		{"another version", func(_ *endpoint, h hello) []byte { b := h.append(nil); b[len(magic)+1]++; return b }, nil, refusedOther, fmt.Sprint("version ", version+1)},
		{"for another node", change(func(h *hello) { h.to = "x" }), nil, refusedIdentity, `"x"`},
		{"of another cluster", change(func(h *hello) { h.cluster = "x" }), nil, refusedIdentity, `"x"`},
		{"without a name", change(func(h *hello) { h.from = "" }), nil, refusedIdentity, `""`},
		{"a refusal", change(func(h *hello) { *h = refuse(io.EOF) }), nil, refusedOther, "not a hello"},
		{"no eventfd", good, []int{}, refusedOther, "0 files"},
		{"two files", good, []int{device, device}, refusedOther, "2 files"},
		{"many files", good, []int{0, 0, 0, 0, 0, 0, 0, 0}, refusedOther, "8 files"},
		{"more files than there is room for", good, make([]int, 100), refusedOther, "too large"},
		{"a device for an eventfd", good, []int{device}, refusedOther, "want an eventfd"},
		{"a device for an area", change(func(h *hello) { h.areas, h.area = 1, 4096 }), []int{-1, device}, refusedOther, "not a memfd"},
		{"an area that can shrink", change(func(h *hello) { h.areas, h.area = 1, 4096 }), []int{-1, memory}, refusedOther, "seals"},
	}
}

// TestBadClients: a refused client receives the reason, and does not disturb
// others.
func TestBadClients(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a", AreaSize: 4096})
	memory, mem, err := newMemory("test", 4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Munmap(mem)
	device, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	peerEvent, err := newEventFD()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { unix.Close(memory); device.Close(); unix.Close(peerEvent) }()

	before := openFiles(t)
	for _, c := range badClients(memory, int(device.Fd())) {
		t.Run(c.name, func(t *testing.T) {
			sock := rawDial(t, node)
			files := c.files
			if files == nil {
				files = []int{peerEvent}
			}
			for i := range files {
				if files[i] == -1 {
					files[i] = peerEvent
				}
			}
			h := hello{kind: kindHello, cluster: node.cfg.Cluster, from: "b", to: "a"}
			if err := sendMessage(sock, c.hello(node, h), files...); err != nil {
				t.Fatal(err)
			}
			l, err := (&messageReader{sock: sock}).next()
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseHello(l.text)
			if err != nil || got.kind != kindRefusal || got.code != c.code || !strings.Contains(got.text, c.want) {
				t.Errorf("got %+v, %v, want a refusal with code %d and %q", got, err, c.code, c.want)
			}
			sock.Close()
		})
	}
	wantOpenFiles(t, before)
	connectNodes(t, newNode(t, Config{Cluster: node.cfg.Cluster, Node: "b"}), node)
}

// TestSilentClients: clients that send nothing, or disconnect, do not delay others.
func TestSilentClients(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a"})
	for i := range 50 {
		sock := rawDial(t, node)
		if i%2 == 0 {
			sock.Close()
		}
	}
	// If the node waited for a silent client every try would be slow. On a busy machine
	// some tries are slow anyway.
	const tries = 10
	for n := range tries {
		start := time.Now()
		connectNodes(t, newNode(t, Config{Cluster: node.cfg.Cluster, Node: fmt.Sprint("b", n)}), node)
		took := time.Since(start)
		if took <= deadline.Handshake/2 {
			return
		}
		t.Logf("Accept took %v", took)
		for range 25 {
			rawDial(t, node)
		}
	}
	t.Errorf("each of %d Accepts took more than %v", tries, deadline.Handshake/2)
}

// TestTooManySilentClients: clients beyond handshakesMax are refused immediately.
func TestTooManySilentClients(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a", Log: slog.New(slog.DiscardHandler)})
	for range handshakesMax {
		rawDial(t, node)
	}
	sock := rawDial(t, node)
	l, err := (&messageReader{sock: sock}).next()
	if err != nil {
		t.Fatal(err)
	}
	if h, err := parseHello(l.text); err != nil || h.kind != kindRefusal {
		t.Errorf("got %+v, %v, want a refusal", h, err)
	}
}

// TestImpostor: Dial refuses a listener with the name of a node that is another node, or speaks
// another protocol.
func TestImpostor(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a"})
	good := hello{kind: kindWelcome, cluster: node.cfg.Cluster, from: "b", to: "a"}
	wrong := good
	wrong.from = "c"
	for _, test := range []struct {
		answer   []byte
		identity bool
	}{
		{wrong.append(nil), true},
		{refuse(transport.ErrIdentity).append(nil), true},
		{refuse(io.EOF).append(nil), false},
		{[]byte("220 ready"), false},
		{nil, false}, // hangs up
	} {
		ln, err := net.ListenUnix(network, &net.UnixAddr{Net: network, Name: socketName(node.cfg.Cluster, "b")})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if sock, err := ln.AcceptUnix(); err == nil {
				if test.answer != nil {
					sock.Write(test.answer)
				}
				sock.Close()
			}
		}()
		_, err = node.Dial(t.Context(), "b", "b")
		if err == nil || errors.Is(err, transport.ErrIdentity) != test.identity || errors.Is(err, ErrNotLocal) {
			t.Errorf("answer %q: %v, of identity: want %v", test.answer, err, test.identity)
		}
		ln.Close()
		<-done
	}
}

// otherUser is a child that runs as another user. It dials a node, then listens under the name
// of another node, and prints the errors.
func otherUser(o orders) {
	tr, err := New(Config{Cluster: o.Cluster, Node: o.Node})
	check(err)
	_, err = tr.Dial(context.Background(), o.Dial, o.Dial)
	say(err)
	sock, err := connect(context.Background(), socketName(o.Cluster, o.Dial))
	check(err)
	// The refusal that it receives if it does not check the user of the socket.
	l, err := (&messageReader{sock: sock}).next()
	check(err)
	h, err := parseHello(l.text)
	check(err)
	say(h.refusal())
	io.Copy(io.Discard, os.Stdin)
	check(tr.Close())
}

// TestOtherUser: processes of two users refuse each other, whichever of them dials.
func TestOtherUser(t *testing.T) {
	require.Root(t)
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "ours"})
	cmd := exec.Command(copyBinary(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUserID, Gid: otherUserID}}
	cmd.Dir = "/"
	ch := launch(t, cmd, orders{Task: "otherUser", Cluster: node.cfg.Cluster, Node: "theirs", Dial: "ours"})
	for _, what := range []string{"dial as another user", "talk as another user"} {
		got := ch.line()
		t.Logf("%s: %s", what, got)
		if !strings.Contains(got, transport.ErrIdentity.Error()) || !strings.Contains(got, "belongs to user") {
			t.Errorf("%s: got %q, want ErrIdentity and the users", what, got)
		}
	}
	_, err := node.Dial(t.Context(), "theirs", "theirs")
	t.Logf("dial another user: %v", err)
	if !errors.Is(err, transport.ErrIdentity) || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("dial another user: got %v, want ErrIdentity and the user", err)
	}
	tr, err := New(Config{Cluster: node.cfg.Cluster, Node: "theirs"})
	if err == nil {
		tr.Close()
	}
	t.Logf("listen under their name: %v", err)
	if err == nil || !strings.Contains(err.Error(), "user 65534") {
		t.Errorf("listen under their name: got %v, want an error that names the user", err)
	}
	ch.exit(t)
}

// copyBinary copies the test binary to a directory where every user can run it.
func copyBinary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shm") //nolint:usetesting // the parents of t.TempDir are closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "test")
	if err := os.WriteFile(name, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}
