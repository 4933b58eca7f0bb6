package shm

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestKill9: when a busy peer dies at any instruction, the survivor notices soon and frees all
// resources of the conn.
func TestKill9(t *testing.T) {
	const kills = 60
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "survivor", AreaSize: 4096})
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	var files, maps, running int
	var noticed []time.Duration
	for i := range kills {
		if i == 2 { // files and threads of the runtime have been made
			files, maps, running = openFiles(t), mappings(t), threads(t)
		}
		noticed = append(noticed, killBusy(t, node, i%2 == 0, time.Duration(rng.IntN(20_000))*time.Microsecond))
	}
	slices.Sort(noticed)
	t.Logf("noticed after %v, in the worst case after %v", noticed[kills/2], noticed[kills-1])
	if noticed[kills/2] > time.Second {
		t.Errorf("the median time to notice is %v", noticed[kills/2])
	}
	wantOpenFiles(t, files)
	// The area of each of them stays mapped.
	wantMappings(t, maps+kills-2)
	wantAtMost(t, "threads", running+5, threads)
	node.Close()
	wantMappings(t, 0)
}

// killBusy kills a child at a time after it has begun to move bytes in both directions, and
// returns the time that it took to notice.
func killBusy(t *testing.T, node *endpoint, dial bool, delay time.Duration) time.Duration {
	o := orders{Task: "flood", Cluster: node.cfg.Cluster, Node: "victim " + time.Now().String(), AreaSize: 4096}
	var c transport.Conn
	var err error
	if dial {
		ch := startChild(t, o)
		defer ch.kill()
		c, err = node.Dial(t.Context(), o.Node, o.Node)
		return killDuring(t, c, err, ch, delay)
	}
	o.Dial = node.Addr()
	ch := startChild(t, o)
	defer ch.kill()
	c, err = node.Accept(t.Context())
	return killDuring(t, c, err, ch, delay)
}

func killDuring(t *testing.T, c transport.Conn, err error, ch *child, delay time.Duration) time.Duration {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	ends := make(chan error, 4)
	for range 2 {
		s, err := c.OpenPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for buf := make([]byte, 300_000); ; {
				if _, err := s.Write(buf); err != nil {
					ends <- err
					return
				}
			}
		})
		group.Go(func() {
			r, err := c.AcceptPipe(t.Context())
			for err == nil {
				_, err = r.ReadFunc(100_000, func([]byte) {})
			}
			ends <- err
		})
	}
	time.Sleep(delay)
	start := time.Now()
	if err := ch.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-time.After(time.Minute):
		t.Fatal("the connection continues a minute after the death of the peer")
	}
	took := time.Since(start)
	ended := transport.CapabilitiesOf(c).MemorySharer.PeerEnded()
	for !ended() {
		if time.Since(start) > time.Minute {
			t.Fatalf("PeerEnded reports false for a killed peer: %v", c.Err())
		}
		time.Sleep(time.Millisecond)
	}
	group.Wait()
	close(ends)
	for err := range ends {
		if !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("a call returns %v, want ErrPeerGone", err)
		}
	}
	if !errors.Is(c.Err(), transport.ErrPeerGone) {
		t.Errorf("Err() = %v, want ErrPeerGone", c.Err())
	}
	return took
}

// TestOrderlyExit: a process that closes its node before it exits is not reported as dead, even
// if it leaves messages unread.
func TestOrderlyExit(t *testing.T) {
	o := orders{Task: "echo", Cluster: uniqueCluster(), Node: "child"}
	ch := startChild(t, o)
	c, err := newNode(t, Config{Cluster: o.Cluster, Node: "parent"}).Dial(t.Context(), "child", "child")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	var got [5]byte
	if _, err := io.ReadFull(r, got[:]); err != nil || string(got[:]) != "hello" {
		t.Fatalf("echo of hello: %q, %v", got, err)
	}
	ch.exit(t)
	<-c.Done()
	if !errors.Is(c.Err(), transport.ErrPeerClosed) {
		t.Errorf("Err() = %v, want ErrPeerClosed", c.Err())
	}
}

// TestByeBehindUnreadMessages: the goodbye arrives although the kernel first reports an error,
// because of messages that the peer has not read.
func TestByeBehindUnreadMessages(t *testing.T) {
	node := newNode(t, Config{Cluster: uniqueCluster(), Node: "a"})
	sock, c := rawConnect(t, node)
	if _, err := c.OpenPipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := trySendMessage(sock, []byte{messageBye}); err != nil {
		t.Fatal(err)
	}
	sock.Close()
	<-c.Done()
	if !errors.Is(c.Err(), transport.ErrPeerClosed) {
		t.Errorf("Err() = %v, want ErrPeerClosed", c.Err())
	}
}
