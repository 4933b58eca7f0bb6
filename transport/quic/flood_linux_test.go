package quic

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/testpeer"
)

// BenchmarkRefusedHandshake measures the processor time that a node spends on a silent
// handshake of a flood, in bursts of five every 5 ms: the time of the whole process, less
// that of the same sender to an unread socket.
func BenchmarkRefusedHandshake(b *testing.B) {
	for _, source := range []string{"unverified", "limited"} {
		b.Run(source, func(b *testing.B) {
			node := newTestNode(b, Config{}, testpeer.NewCA(b).Node(b, "node"))
			from := netip.MustParseAddr("127.0.0.2")
			flood := &flooder{from, recordInitials(b), func() {}}
			if source == "limited" {
				flood.before = func() { limit(b, node.end.handshakes.admission, from) }
			} else {
				press(b, node.end.handshakes.admission)
			}
			discard, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer discard.Close()
			flood.send(b, node.Addr(), min(b.N, 500)) // warms up
			b.ResetTimer()
			start := processorTime(b)
			flood.send(b, discard.LocalAddr().String(), b.N)
			sending := processorTime(b) - start
			flood.send(b, node.Addr(), b.N)
			total := processorTime(b) - start - sending
			b.ReportMetric(float64((total-sending).Microseconds())/float64(b.N), "µs-cpu/handshake")
			b.ReportMetric(float64(sending.Microseconds())/float64(b.N), "µs-cpu/sent")
		})
	}
}

// TestFloodStopsAtFilter checks that quic-go refuses a bounded number of the handshakes of a flood
// from a limited source.
func TestFloodStopsAtFilter(t *testing.T) {
	ca := testpeer.NewCA(t)
	end, err := Listen(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	start := time.Now()
	end.packets.(*socket).initials.now = func() time.Time { return start } // No further answers are due.
	var entered atomic.Int64
	enter := end.quic.ConnContext
	end.quic.ConnContext = func(ctx context.Context, info *quicgo.ClientInfo) (context.Context, error) {
		entered.Add(1)
		return enter(ctx, info)
	}
	server, err := end.Transport(ca.Node(t, "server"))
	if err != nil {
		t.Fatal(err)
	}
	from := netip.MustParseAddr("127.0.0.2")
	limit(t, end.handshakes.admission, from)
	flood := &flooder{from, recordInitials(t), func() {}}
	flood.send(t, end.Addr(), answersMax+200)
	client := newTestNode(t, Config{}, ca.Node(t, "client"))
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if _, err := client.Dial(ctx, server.Addr(), "server"); err != nil { // read after the flood
		t.Fatal(err)
	}
	if n := entered.Load(); n < 2 || n > answersMax+1 {
		t.Errorf("quic-go has read %d handshakes, want at most %d of the flood and the one of another address", n, answersMax)
	}
}

func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// A flooder sends the first packets of a client, each with another destination connection
// ID: Retries and refusals depend only on the header.
type flooder struct {
	from    netip.Addr
	packets [][]byte
	before  func() // called every 5 ms
}

// send starts n handshakes with a node, five every 5 ms.
func (f *flooder) send(tb testing.TB, to string, n int) {
	tb.Helper()
	addr, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		tb.Fatal(err)
	}
	sock, err := net.DialUDP("udp", &net.UDPAddr{IP: f.from.AsSlice()}, addr)
	if err != nil {
		tb.Fatal(err)
	}
	defer sock.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for i := range n {
		var id [8]byte
		rand.Read(id[:])
		for _, packet := range f.packets {
			copy(packet[6:], id[:]) // RFC 8999, section 5.1
			sock.Write(packet)
		}
		if i%5 == 4 {
			<-tick.C
			f.before()
		}
	}
}

// recordInitials returns the first packets of a client, all with one destination
// connection ID.
func recordInitials(tb testing.TB) (packets [][]byte) {
	tb.Helper()
	rec := &packetRecorder{closed: make(chan struct{}), packets: make(chan []byte, 2)}
	end, err := Listen(Config{PacketConn: rec, Heartbeat: -1})
	if err != nil {
		tb.Fatal(err)
	}
	defer end.Close()
	ctx, cancel := context.WithCancel(tb.Context())
	dialed := make(chan struct{})
	go func() {
		defer close(dialed)
		end.Dial(ctx, "127.0.0.1:9", testpeer.NewCA(tb).Node(tb, "client").Client(""))
	}()
	for range cap(rec.packets) {
		packets = append(packets, <-rec.packets)
	}
	cancel()
	<-dialed
	return packets
}

// A packetRecorder is a socket that keeps the first packets written to it and receives
// nothing.
type packetRecorder struct {
	closed  chan struct{}
	once    sync.Once
	packets chan []byte
}

func (r *packetRecorder) WriteTo(p []byte, _ net.Addr) (int, error) {
	select {
	case r.packets <- bytes.Clone(p):
	default:
	}
	return len(p), nil
}

func (r *packetRecorder) ReadFrom([]byte) (int, net.Addr, error) {
	<-r.closed
	return 0, nil, net.ErrClosed
}

func (r *packetRecorder) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

func (r *packetRecorder) LocalAddr() net.Addr {
	return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
}

func (r *packetRecorder) SetDeadline(t time.Time) error    { return r.SetReadDeadline(t) }
func (r *packetRecorder) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline ends reading: quic-go sets a deadline when it closes.
func (r *packetRecorder) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		r.Close()
	}
	return nil
}
