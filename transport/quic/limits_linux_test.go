package quic

import (
	"net"
	"testing"

	"github.com/nexar-go/nexar/internal/testpeer"
)

// TestOtherSource checks that a client is admitted at once when clients of another
// address have used up the limit, over UDP and TCP.
func TestOtherSource(t *testing.T) {
	const limit = 8
	ca := testpeer.NewCA(t)
	server := newTestNode(t, Config{Addr: "0.0.0.0:0", MaxHandshakes: limit}, ca.Node(t, "server"))
	_, port, _ := net.SplitHostPort(server.Addr())
	addr := net.JoinHostPort("127.0.0.1", port)
	flooder := newTestNode(t, Config{}, ca.Node(t, "flooder"))
	other := newTestNode(t, Config{Addr: "127.0.0.2:0"}, ca.Node(t, "other"))

	stall(t, flooder, server, limit)
	if _, err := other.Dial(t.Context(), addr, "server"); err != nil {
		t.Errorf("beside stalled handshakes: %v", err)
	}
	silent, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if n := server.end.handshakes.admission.Len(); n > limit {
		t.Errorf("%d connections have proved nothing, want %d at most", n, limit)
	}
	l := share(t, server)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
	sock, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if _, err := sock.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if accepted, err := l.Accept(); err != nil || accepted.RemoteAddr().String() != sock.LocalAddr().String() {
		t.Errorf("accepted %v, %v", accepted, err)
	}
}
