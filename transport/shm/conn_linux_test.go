package shm

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// rawConnect returns a client after its handshake, as a socket.
func rawConnect(t *testing.T, node *endpoint) (*net.UnixConn, *conn) {
	t.Helper()
	sock := rawDial(t, node)
	peerEvent, err := newEventFD()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(peerEvent)
	h := hello{kind: kindHello, cluster: node.cfg.Cluster, from: "raw", to: node.cfg.Node}
	if err := sendMessage(sock, h.append(nil), peerEvent); err != nil {
		t.Fatal(err)
	}
	c, err := node.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sock, c.(*conn)
}

// openMessage returns the message that opens a pipe.
func openMessage(size int) []byte {
	return binary.BigEndian.AppendUint32([]byte{messageOpen}, uint32(size))
}

// TestBadMessages: a peer that breaks the protocol ends its conn, and
// leaves no file and no mapping behind.
func TestBadMessages(t *testing.T) {
	memory := func(size, seals int) int {
		fd, mem, err := newMemory("test", size, seals)
		if err != nil {
			t.Fatal(err)
		}
		unix.Munmap(mem)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	good := memory(headerBytes+ringBytes, pipeSeals)
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a"})
	for name, test := range map[string]struct {
		text  []byte
		files []int
		times int
	}{
		"unknown":                    {text: []byte{'?'}},
		"long":                       {text: make([]byte, 5000)},
		"many files":                 {text: openMessage(ringBytes), files: []int{good, good, good}},
		"more files than room":       {text: openMessage(ringBytes), files: make([]int, 50)},
		"no memory":                  {text: openMessage(ringBytes)},
		"two memories":               {text: openMessage(ringBytes), files: []int{good, good}},
		"no size":                    {text: openMessage(0)[:4], files: []int{good}},
		"a bye with more":            {text: []byte{messageBye, 0}},
		"small ring":                 {text: openMessage(2048), files: []int{memory(headerBytes+2048, pipeSeals)}},
		"large ring":                 {text: openMessage(32 << 20), files: []int{memory(headerBytes+32<<20, pipeSeals)}},
		"odd ring":                   {text: openMessage(12 << 10), files: []int{memory(headerBytes+12<<10, pipeSeals)}},
		"less memory than announced": {text: openMessage(2 * ringBytes), files: []int{good}},
		"more memory than announced": {text: openMessage(ringBytes / 2), files: []int{good}},
		"memory that shrinks":        {text: openMessage(ringBytes), files: []int{memory(headerBytes+ringBytes, unix.F_SEAL_GROW)}},
		"a socket":                   {text: openMessage(ringBytes), files: []int{good}, times: -1},
		"accepts an unknown pipe":    {text: []byte{messageAccepted}},
		"too many pipes":             {text: openMessage(ringBytes), files: []int{good}, times: backlogMax + 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			sock, c := rawConnect(t, node)
			if test.times < 0 {
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				test.files = pair[:1]
				defer unix.Close(pair[0])
				defer unix.Close(pair[1])
			}
			for range max(test.times, 1) {
				if err := sendMessage(sock, test.text, test.files...); err != nil {
					t.Fatal(err)
				}
			}
			<-c.Done()
			if !errors.Is(c.Err(), transport.ErrPeerGone) {
				t.Errorf("Err() = %v, want ErrPeerGone", c.Err())
			}
			sock.Close()
			if test.times < 0 {
				before += 2
			}
			wantOpenFiles(t, before)
			wantMappings(t, 0)
		})
	}
}

// TestEmptyMessage sends an empty message, which reads like the end of the socket.
func TestEmptyMessage(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a"})
	before := openFiles(t)
	sock, c := rawConnect(t, node)
	fd, err := newEventFD()
	if err != nil {
		t.Fatal(err)
	}
	if err := sendMessage(sock, nil, fd); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if !errors.Is(c.Err(), transport.ErrPeerGone) {
		t.Errorf("Err() = %v, want ErrPeerGone", c.Err())
	}
	unix.Close(fd)
	sock.Close()
	wantOpenFiles(t, before)
}

// TestOpenPipeBlocks: a peer that accepts no pipes makes OpenPipe block.
func TestOpenPipeBlocks(t *testing.T) {
	a, b := newPair(t, Config{})
	for range backlogMax {
		if _, err := a.OpenPipe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	opened := make(chan error)
	go func() {
		s, err := a.OpenPipe(t.Context())
		if err == nil {
			s.Write([]byte("last"))
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("OpenPipe does not block: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	var r transport.Receiver
	for range backlogMax + 1 {
		var err error
		if r, err = b.AcceptPipe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	var got [4]byte
	if _, err := io.ReadFull(r, got[:]); err != nil || string(got[:]) != "last" {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestAllocations: Write and Read do not allocate.
func TestAllocations(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	p := make([]byte, 1000)
	view := func([]byte) {}
	n := testing.AllocsPerRun(100, func() {
		s.Write(p)
		s.TryWrite(p)
		r.Read(p)
		r.ReadFunc(len(p), view)
	})
	if n > 0 {
		t.Errorf("%v allocations for two writes and two reads", n)
	}
}
