package quic

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// A filterTest is an initialFilter in fake time.
type filterTest struct {
	*initialFilter
	t    *testing.T
	gate *admission.Gate
	time time.Time
}

func newFilterTest(t *testing.T) *filterTest {
	// A limited source stays limited, since failures are forgotten after hours.
	gate := admission.NewGate(admission.Limits{Max: 512, Burst: 2, Interval: time.Hour})
	h := &handshakes{admission: gate, refusals: &refusals{log: slog.New(slog.DiscardHandler)}}
	f := &filterTest{initialFilter: newInitialFilter(h), t: t, gate: gate, time: time.Now()}
	f.now = func() time.Time { return f.time }
	f.start = f.time
	return f
}

func (f *filterTest) want(want initialAction, id byte, from string) {
	f.t.Helper()
	f.wantPacket(want, initialPacket(8, id, false), from)
}

func (f *filterTest) wantPacket(want initialAction, p []byte, from string) {
	f.t.Helper()
	if got := f.inspect(p, netip.MustParseAddr(from)); got != want {
		f.t.Fatalf("the action is %d, want %d", got, want)
	}
}

// initialPacket returns an Initial with a destination connection ID of n bytes.
func initialPacket(n int, id byte, token bool) []byte {
	p := []byte{0xc0, 0, 0, 0, 1, byte(n)}
	for range n {
		p = append(p, id)
	}
	p = append(p, 4, 1, 2, 3, 4)
	if token {
		p = append(p, 5, 1, 2, 3, 4, 5)
	} else {
		p = append(p, 0)
	}
	return append(p, make([]byte, initialBytesMin-len(p))...)
}

// limit makes enough connections of a source fail to limit it for several seconds.
func limit(tb testing.TB, gate *admission.Gate, from netip.Addr) {
	tb.Helper()
	var tickets []*admission.Ticket
	for range 400 {
		ticket, err := gate.TryEnter(admission.SourceOf(from), true, func() {})
		if errors.Is(err, admission.ErrLimited) {
			break
		} else if err != nil {
			tb.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	for _, ticket := range tickets {
		ticket.Leave()
	}
}

// press fills the gate until clients must validate their address.
func press(tb testing.TB, gate *admission.Gate) {
	tb.Helper()
	for !gate.Pressed() {
		if _, err := gate.TryEnter(admission.SourceOf(netip.MustParseAddr("127.0.0.3")), true, func() {}); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestLimitedSource checks that new connections of a limited source are answered once per
// flight, and that known connections and those of other sources are admitted.
func TestLimitedSource(t *testing.T) {
	const limited, other = "127.0.0.2", "127.0.0.3"
	f := newFilterTest(t)
	f.want(initialAdmitted, 1, limited)
	limit(t, f.gate, netip.MustParseAddr(limited))
	f.want(initialAdmitted, 1, limited)
	f.want(initialAnswered, 2, limited)
	f.want(initialDropped, 2, limited)
	f.want(initialAdmitted, 2, other)
	f.want(initialAnswered, 3, limited)
	f.wantPacket(initialAdmitted, initialPacket(4, 9, true), limited) // an ID of this side
	f.wantPacket(initialDropped, initialPacket(8, 4, false)[:1199], limited)
	f.time = f.time.Add(flightTime)
	f.want(initialAnswered, 2, limited) // the client retransmits
	f.want(initialAdmitted, 1, limited)
	f.time = f.time.Add(handshakeMemory)
	f.want(initialAnswered, 1, limited)
}

// TestRetryOncePerFlight checks that quic-go answers one packet per flight of a client that
// must validate its address, and that all packets with a token or of a connection pass.
func TestRetryOncePerFlight(t *testing.T) {
	const from = "127.0.0.2"
	f := newFilterTest(t)
	f.want(initialAdmitted, 1, from)
	press(t, f.gate)
	f.want(initialAdmitted, 1, from)
	f.want(initialAnswered, 2, from)
	f.want(initialDropped, 2, from)
	f.wantPacket(initialAdmitted, initialPacket(8, 2, true), from)
	f.want(initialAdmitted, 2, from)
	f.time = f.time.Add(flightTime)
	f.want(initialAnswered, 3, from)
}

// TestAnswersAreBounded checks the burst and the rate of the answers to a source, and
// that other sources are answered.
func TestAnswersAreBounded(t *testing.T) {
	f := newFilterTest(t)
	press(t, f.gate)
	const rate, seconds = 4000, 4
	flood, other := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	for f.answersTo(admission.SourceOf(other)) == f.answersTo(admission.SourceOf(flood)) {
		other = other.Next()
	}
	var answered [2]int
	for i := range rate * seconds {
		f.time = f.time.Add(time.Second / rate)
		p := initialPacket(8, 0, false)
		p[6], p[7] = byte(i>>8), byte(i)
		if v := f.inspect(p, flood); v == initialAnswered {
			answered[0]++
		}
		if i%(rate/100) == 0 {
			p[8] = 1
			if v := f.inspect(p, other); v == initialAnswered {
				answered[1]++
			}
		}
	}
	if most := answersMax + seconds*int(time.Second/answersEvery); answered[0] > most || answered[0] < most*9/10 {
		t.Errorf("%d of the flood are answered, want %d", answered[0], most)
	}
	if answered[1] != 100*seconds {
		t.Errorf("%d of %d clients of another source are answered", answered[1], 100*seconds)
	}
}

// TestParseInitial checks that only Initial packets are recognized, and that no length in
// the header exceeds the packet.
func TestParseInitial(t *testing.T) {
	p := initialPacket(8, 1, true)
	id, hasToken, ok := parseInitial(p)
	if !ok || !bytes.Equal(id.bytes[:id.n], bytes.Repeat([]byte{1}, 8)) || !hasToken {
		t.Fatalf("the ID is read as %+v, with a token: %t, an Initial: %t", id, hasToken, ok)
	}
	for n := range 24 {
		if id, _, ok := parseInitial(p[:n]); ok != (n > 19) {
			t.Errorf("the first %d bytes are read as %+v, %t", n, id, ok)
		}
	}
	for name, change := range map[string]func(p []byte){
		"a short header":      func(p []byte) { p[0] = 0x40 },
		"a Handshake packet":  func(p []byte) { p[0] = 0xe0 },
		"another version":     func(p []byte) { p[4] = 9 },
		"a long ID":           func(p []byte) { p[5] = 21 },
		"no fixed bit":        func(p []byte) { p[0] = 0x80 },
		"a Retry of QUIC 2":   func(p []byte) { copy(p, []byte{0xc0, 0x6b, 0x33, 0x43, 0xcf}) },
		"a long source's ID":  func(p []byte) { p[14] = 21 },
		"version negotiation": func(p []byte) { p[4] = 0 },
	} {
		p := initialPacket(8, 1, true)
		if change(p); p != nil {
			if id, _, ok := parseInitial(p); ok {
				t.Errorf("%s is read as an Initial for %+v", name, id)
			}
		}
	}
}

// TestBusyToLimitedSource checks that a client of a limited source learns without a handshake
// that the node is busy, while connections and handshakes of the same source continue.
func TestBusyToLimitedSource(t *testing.T) {
	ca := testpeer.NewCA(t)
	server := newTestNode(t, Config{}, ca.Node(t, "server"))
	client := newTestNode(t, Config{Addr: "127.0.0.2:0"}, ca.Node(t, "client"))
	dialed, accepted := connect(t, client, server)
	s, r := pipeBetween(t, dialed, accepted)
	gate := server.end.handshakes.admission
	from := netip.MustParseAddr("127.0.0.2")

	begun, goOn := make(chan struct{}), make(chan struct{})
	slow := make(chan error, 1)
	go func() {
		conf := client.creds.Client("server")
		verify := conf.VerifyConnection
		conf.VerifyConnection = func(state tls.ConnectionState) error {
			close(begun)
			<-goOn
			return verify(state)
		}
		c, err := client.end.Dial(t.Context(), server.Addr(), conf)
		if err == nil {
			err = c.Close()
		}
		slow <- err
	}()
	<-begun
	limit(t, gate, from)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := client.Dial(ctx, server.Addr(), "server")
	if !errors.Is(err, transport.ErrBusy) {
		t.Errorf("a dial from a limited source: %v, want ErrBusy", err)
	}
	close(goOn)
	if err := <-slow; err != nil {
		t.Errorf("a handshake that had begun: %v", err)
	}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("an open connection: read %d bytes, %v", n, err)
	}
}
