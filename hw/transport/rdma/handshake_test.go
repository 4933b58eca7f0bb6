//go:build linux

package rdma

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
)

// TestUnprovedConnections: the port holds a limited number of connections without a proof of the peer, and peers still connect.
func TestUnprovedConnections(t *testing.T) {
	needDevice(t)
	const places = 4
	cfg := Config{unproved: admission.Limits{Max: places, MinAge: time.Millisecond}}
	cluster := clusterOf(t, new(Counters), cfg, cfg)
	addr := cluster.Transports[1].Addr()
	ended := make(chan error, 5*places)
	for range cap(ended) {
		s, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		go func() {
			_, err := io.Copy(io.Discard, s)
			ended <- err
		}()
	}
	for range cap(ended) - places {
		<-ended
	}
	if n := cluster.Transports[1].(*rdma).limiter.Len(); n > places {
		t.Errorf("%d connections without a proof, want at most %d", n, places)
	}
	a, b := connect(t, cluster)
	if err := stream(t.Context(), a, b, 5, func(int) {}); err != nil {
		t.Error(err)
	}
}

// TestListenHost: without Config.Listen the port is one of the host of the node's own port.
func TestListenHost(t *testing.T) {
	for listen, want := range map[string]string{"127.0.0.1:7946": "127.0.0.1:0", "[::1]:0": "[::1]:0", ":7946": ":0", "": ":0"} {
		if got := anyPort(listen); got != want {
			t.Errorf("anyPort(%q) = %q, want %q", listen, got, want)
		}
	}
}

// TestReadReady: only ctlReady ends a handshake.
func TestReadReady(t *testing.T) {
	if err := readReady(bytes.NewReader([]byte{ctlReady})); err != nil {
		t.Error(err)
	}
	if err := readReady(bytes.NewReader([]byte{ctlBye})); err == nil || !strings.Contains(err.Error(), `'b'`) {
		t.Errorf("error %v, want one that names the byte", err)
	}
	if err := readReady(bytes.NewReader(farewell(io.ErrShortBuffer))); !errors.Is(err, errFailed) || !strings.Contains(err.Error(), "short buffer") {
		t.Errorf("error %v, want the reason of the peer", err)
	}
	if err := readReady(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Errorf("error %v, want io.EOF", err)
	}
}

// TestDialRefused: a dial fails with the reason of a peer that cannot make a queue pair. The error is one of the network: the process of the peer
// has not ended.
func TestDialRefused(t *testing.T) {
	needDevice(t)
	cluster := clusterOf(t, new(Counters), Config{})
	x := cluster.Transports[0]
	defer x.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		s, err := l.Accept()
		if err != nil {
			return
		}
		defer s.Close()
		_, _ = tls.Server(s, x.(*rdma).env.Server).Write(farewell(syscall.ENOMEM))
	}()
	_, err = x.Dial(t.Context(), l.Addr().String(), cluster.Identities[0])
	if !errors.Is(err, syscall.ENETDOWN) || !strings.Contains(err.Error(), syscall.ENOMEM.Error()) {
		t.Errorf("error %v, want %v because of %v", err, syscall.ENETDOWN, syscall.ENOMEM)
	}
}

// TestGather: all bytes of several slices arrive once and in order, also if some slices are empty, over messages of one slot and more. Each is
// copied once.
func TestGather(t *testing.T) {
	needDevice(t)
	counters := new(Counters)
	a, b := connect(t, clusterOf(t, counters, Config{}, Config{}))
	p, err := a.OpenLarge(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := p.(*sender)
	r, err := acceptOf(t.Context(), b, s.pipe)
	if err != nil {
		t.Fatal(err)
	}
	var sent, got []byte
	fill := func(n int) []byte {
		part := make([]byte, n)
		for i := range part {
			part[i] = byte(len(sent) + i)
		}
		sent = append(sent, part...)
		return part
	}
	for _, sizes := range [][]int{{1, 0, 2}, {0, slotBytes}, {slotBytes - 1, 1, 1}, {100, slotBytes, 0, slotBytes + 7}} {
		var pieces [][]byte
		size := 0
		for _, n := range sizes {
			pieces, size = append(pieces, fill(n)), size+n
		}
		for before := counters.Copied(); ; before = counters.Copied() {
			if s.TryWriteVectored(pieces) {
				if n := counters.Copied() - before; n != uint64(size) {
					t.Errorf("slices of %v bytes: %d bytes copied, want %d", sizes, n, size)
				}
				break
			}
			time.Sleep(time.Millisecond)
		}
		buf := make([]byte, size)
		if _, err := io.ReadFull(r, buf); err != nil {
			t.Fatal(err)
		}
		got = append(got, buf...)
	}
	if !bytes.Equal(got, sent) {
		t.Error("wrong bytes")
	}
}
