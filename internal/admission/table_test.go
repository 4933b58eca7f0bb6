package admission

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// A world is a Table in fake time.
type world struct {
	t     *testing.T
	table *Table
	now   time.Time
}

func newWorld(t *testing.T, l Limits) *world {
	return &world{t, NewTable(l), time.Unix(1000, 0)}
}

func addr(n int) Source {
	return SourceOf(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *world) want(from Source, want Outcome) Decision {
	w.t.Helper()
	d := w.table.Admit(w.now, from, true)
	if d.Outcome != want {
		w.t.Fatalf("a connection from %v is %v, want %v", from, d.Outcome, want)
	}
	if (d.Conn != nil) != (want == Admitted) || (d.Wait > 0) == (want == Admitted) {
		w.t.Fatalf("%v: entry %v, wait %v", want, d.Conn, d.Wait)
	}
	return d
}

// flood admits n connections of a source that never authenticate themselves.
func (w *world) flood(from Source, n int) (conns []*Conn) {
	w.t.Helper()
	for range n {
		conns = append(conns, w.want(from, Admitted).Conn)
	}
	return conns
}

func (w *world) prove(c *Conn) {
	w.t.Helper()
	if !w.table.Prove(w.now, c) {
		w.t.Fatalf("a connection of %v has been evicted", c.source.key)
	}
}

// TestDefaultBurst: the default of Burst grows with Max within bounds.
func TestDefaultBurst(t *testing.T) {
	for _, test := range []struct{ places, burst, want int }{
		{0, 0, 256}, {1, 0, 256}, {512, 0, 256}, {514, 0, 257}, {2000, 0, 1000}, {2048, 0, 1024}, {1 << 20, 0, 1024}, {64, 32, 32}, {64, 5000, 5000},
	} {
		if got := (Limits{Max: test.places, Burst: test.burst}).withDefaults().Burst; got != test.want {
			t.Errorf("Max %d, Burst %d: Burst is %d, want %d", test.places, test.burst, got, test.want)
		}
	}
}

// TestFloodOfOneSource: a source that fills the table does not displace others, and
// is limited to one connection per interval in the end.
func TestFloodOfOneSource(t *testing.T) {
	w := newWorld(t, Limits{Max: 64, Burst: 32, Interval: 100 * time.Millisecond, MinAge: time.Second})
	flooder := addr(1)
	var silent []*Conn
	admitted, refused := 0, 0
	const seconds, rate = 30, 1000
	for tick := range seconds * rate {
		if d := w.table.Admit(w.now, flooder, true); d.Outcome == Admitted {
			silent = append(silent, d.Conn)
			admitted++
		} else {
			refused++
		}
		for len(silent) > 0 && w.now.Sub(silent[0].since) > 5*time.Second { // the hello timeout
			w.table.Fail(w.now, silent[0])
			silent = silent[1:]
		}
		if tick%100 == 0 { // an honest peer, which authenticates itself after 20 ms
			c := w.want(addr(2+tick), Admitted).Conn
			w.pass(20 * time.Millisecond)
			w.prove(c)
		}
		w.pass(time.Millisecond)
	}
	// Max, Burst, and one per interval for 30 s and the 20 ms of each honest peer.
	if most := 64 + 32 + 360 + 1; admitted > most {
		t.Errorf("%d of %d connections of the flood were admitted, want %d at most", admitted, admitted+refused, most)
	}
	// It recovers when it stops.
	w.pass(5 * time.Second)
	w.prove(w.want(flooder, Admitted).Conn)
}

// TestFloodOfManySources: new connections are admitted as long as the oldest connections are
// old, and neither the table nor its number of sources grows beyond its limit.
func TestFloodOfManySources(t *testing.T) {
	w := newWorld(t, Limits{Max: 64, MinAge: 50 * time.Millisecond})
	var last *Conn
	for n := range 20_000 {
		d := w.want(addr(n), Admitted)
		if n >= 64 && (d.Evicted == nil || w.now.Sub(d.Evicted.since) < 50*time.Millisecond) {
			t.Fatalf("evicted %+v at connection %d", d.Evicted, n)
		}
		if last = d.Conn; w.table.Len() > 64 || len(w.table.sources) > 64+idleMax {
			t.Fatalf("%d connections, %d sources", w.table.Len(), len(w.table.sources))
		}
		w.pass(time.Millisecond)
	}
	w.prove(last)
}

// TestEvictionOrder: the heaviest source loses its oldest connection; of
// several, the one with the oldest connection does.
func TestEvictionOrder(t *testing.T) {
	w := newWorld(t, Limits{Max: 6})
	a, b, c := addr(1), addr(2), addr(3)
	of := make(map[string]*Conn)
	for i, s := range []Source{b, a, a, a, b, c} {
		of[fmt.Sprint(i)] = w.flood(s, 1)[0]
		w.pass(2 * time.Second)
	}
	for _, step := range []struct {
		from    Source
		evicted string
	}{
		{addr(4), "1"}, // a has three
		{addr(5), "0"}, // a and b have two, b the oldest
		{addr(6), "2"}, // a alone has two
		{addr(7), "3"}, // all have one
		{addr(8), "4"},
	} {
		if d := w.want(step.from, Admitted); d.Evicted != of[step.evicted] {
			t.Fatalf("%v: evicted a connection of %v, want number %s", step.from, d.Evicted.source.key, step.evicted)
		}
		w.pass(2 * time.Second)
	}
}

// TestMinAge: a young connection stays, unless its source has much more than its share.
func TestMinAge(t *testing.T) {
	w := newWorld(t, Limits{Max: 4})
	first := w.flood(addr(1), 2)
	w.flood(addr(2), 2)
	// addr(1) has two, twice as many as the source of the new connection.
	if d := w.want(addr(3), Admitted); d.Evicted != first[0] {
		t.Fatalf("evicted %+v", d.Evicted)
	}
	// addr(2) has two, which is not twice the two that addr(3) would have.
	if d := w.want(addr(3), Full); d.Wait != time.Second {
		t.Errorf("wait %v, want a second", d.Wait)
	}
	w.pass(time.Second)
	if d := w.want(addr(3), Admitted); d.Evicted.source.key != addr(2) {
		t.Errorf("evicted a connection of %v", d.Evicted.source.key)
	}
}

// TestProvedIsNeverEvicted: an authenticated connection has no entry to be evicted,
// and an entry is removed once.
func TestProvedIsNeverEvicted(t *testing.T) {
	w := newWorld(t, Limits{Max: 2})
	proved := w.flood(addr(1), 1)[0]
	w.prove(proved)
	if w.table.Prove(w.now, proved) || w.table.Fail(w.now, proved) {
		t.Error("an entry is removed twice")
	}
	for n := range 100 {
		w.pass(time.Second)
		if d := w.want(addr(2+n), Admitted); d.Evicted == proved {
			t.Fatal("a proved connection was evicted")
		}
	}
	if w.table.Len() != 2 {
		t.Errorf("%d entries, want 2", w.table.Len())
	}
}

// TestHonestBehindOneAddress: 256 nodes of one address connect at once and authenticate
// themselves one after the other. All are admitted, even during a flood of another
// address, and so are a thousand that try again when they are refused.
func TestHonestBehindOneAddress(t *testing.T) {
	const proofTime = 2 * time.Millisecond
	for _, flood := range []bool{false, true} {
		w := newWorld(t, Limits{})
		if flood {
			w.flood(addr(1), 512)
			w.pass(time.Second)
		}
		joiners := w.flood(addr(2), 256)
		lost := 0
		for _, c := range joiners {
			w.pass(proofTime)
			if !w.table.Prove(w.now, c) {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("flood %v: %d of 256 joiners lost their connection", flood, lost)
		}
	}
	w := newWorld(t, Limits{})
	var inside []*Conn
	for joined, waiting := 0, 1000; joined < 1000; w.pass(proofTime) {
		for waiting > 0 {
			d := w.table.Admit(w.now, addr(2), true)
			if d.Outcome != Admitted {
				break
			}
			if d.Evicted != nil {
				waiting++
			}
			inside = append(inside, d.Conn)
			waiting--
		}
		// The server serves them in order, and spends no time on evicted ones.
		for len(inside) > 0 {
			c := inside[0]
			inside = inside[1:]
			if w.table.Prove(w.now, c) {
				joined++
				break
			}
		}
		if w.now.Sub(time.Unix(1000, 0)) > 4*1000*proofTime {
			t.Fatalf("%d of 1000 joiners have joined after %v", joined, w.now.Sub(time.Unix(1000, 0)))
		}
	}
}

// TestForgedSource: connections from unverified addresses do not count as failures
// of these addresses.
func TestForgedSource(t *testing.T) {
	w := newWorld(t, Limits{Burst: 4})
	for range 100 {
		d := w.table.Admit(w.now, addr(1), false)
		if d.Outcome != Admitted || !w.table.Fail(w.now, d.Conn) {
			t.Fatal(d.Outcome)
		}
	}
	if len(w.table.sources) != 0 {
		t.Errorf("%d sources are kept", len(w.table.sources))
	}
	for range 4 {
		d := w.table.Admit(w.now, addr(1), false)
		w.table.Verify(d.Conn)
		w.table.Fail(w.now, d.Conn)
	}
	if !w.table.Limited(w.now, addr(1)) || w.table.Limited(w.now, addr(2)) {
		t.Error("Limited does not agree with Admit")
	}
	if d := w.want(addr(1), Limited); d.Wait != 100*time.Millisecond {
		t.Errorf("wait %v, want an interval", d.Wait)
	}
	w.pass(100 * time.Millisecond)
	w.table.Fail(w.now, w.want(addr(1), Admitted).Conn)
	w.pass(99 * time.Millisecond)
	w.want(addr(1), Limited)
	w.pass(time.Millisecond)
	w.want(addr(1), Admitted)
}

func TestSourceOf(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
		text string // of a
	}{
		{"10.0.0.1", "10.0.0.1", true, "10.0.0.1"},
		{"10.0.0.1", "::ffff:10.0.0.1", true, "10.0.0.1"},
		{"10.0.0.1", "10.0.0.2", false, "10.0.0.1"},
		{"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true, "2001:db8:0:1::/64"},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", false, "2001:db8:0:1::/64"},
		{"fe80::1", "fe80::2", false, "fe80::1"},
		{"fe80::1%eth0", "fe80::1%eth1", true, "fe80::1"},
		{"::1", "10.0.0.1", false, "::/64"},
	} {
		a, b := SourceOf(netip.MustParseAddr(test.a)), SourceOf(netip.MustParseAddr(test.b))
		if (a == b) != test.same || a.String() != test.text {
			t.Errorf("%s is %v, %s is %v", test.a, a, test.b, b)
		}
	}
	if s := SourceOf(netip.Addr{}); s != (Source{}) || s.String() != "unknown" {
		t.Errorf("no address is %v", s)
	}
}

// TestRandom performs random operations and checks the invariants after each.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		limits := Limits{Max: 1 + r.IntN(20), Burst: 1 + r.IntN(10), Interval: 100 * time.Millisecond, MinAge: time.Second}
		w := newWorld(t, limits)
		live := make(map[*Conn]bool)
		for range 5000 {
			w.pass(time.Duration(r.IntN(50)) * time.Millisecond)
			if r.IntN(3) > 0 {
				d := w.table.Admit(w.now, addr(r.IntN(8)), r.IntN(2) == 0)
				if d.Evicted != nil {
					if !live[d.Evicted] {
						t.Fatal("evicted an unknown connection")
					}
					delete(live, d.Evicted)
				}
				if d.Outcome == Admitted {
					live[d.Conn] = true
				}
			} else {
				for c := range live {
					if r.IntN(2) == 0 && !w.table.Prove(w.now, c) || live[c] && !w.table.Fail(w.now, c) && w.holds(c) {
						t.Fatal("a connection has no entry")
					}
					delete(live, c)
					break
				}
			}
			w.check(live, limits)
		}
	}
}

func (w *world) holds(c *Conn) bool {
	for _, held := range c.source.conns {
		if held == c {
			return true
		}
	}
	return false
}

func (w *world) check(live map[*Conn]bool, l Limits) {
	w.t.Helper()
	conns, idle := 0, 0
	for key, s := range w.table.sources {
		for i, c := range s.conns {
			if !live[c] || c.source != s || i > 0 && s.conns[i-1].serial >= c.serial {
				w.t.Fatalf("source %v holds %+v as number %d", key, c, i)
			}
		}
		if conns += len(s.conns); len(s.conns) == 0 {
			idle++
		}
		if s.failures < 0 || s.failures > l.Burst+l.Max {
			w.t.Fatalf("source %v has %d failures and %d connections", key, s.failures, len(s.conns))
		}
	}
	if conns != len(live) || conns != w.table.Len() || conns > l.Max || idle != w.table.idle {
		w.t.Fatalf("%d connections, %d counted, %d live, %d at most; %d sources idle, %d counted",
			conns, w.table.Len(), len(live), l.Max, idle, w.table.idle)
	}
}
