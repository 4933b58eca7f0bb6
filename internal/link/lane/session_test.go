package lane

import (
	"fmt"
	"strings"
	"testing"
)

// The sides of the tests of single sessions. The NodeID of b is the larger one.
var a1, a2, b1, b2 = ID{0xa, 1}, ID{0xa, 2}, ID{0xb, 1}, ID{0xb, 2}

// opened returns a session of a1 that has opened a connection of generation 1 with b1.
func open(t *testing.T) (s *Session, c *Conn) {
	t.Helper()
	s, c = NewSession(&Names{Self: a1}, false), new(Conn)
	a := receive(t, s, c, Opening{Kind: Open, From: b1, Generation: 1, Received: 7})
	want := Opening{Kind: Open, From: a1, To: b1, Generation: 1}
	if a.Send != c || fmt.Sprint(a.Opening) != fmt.Sprint(want) || a.Opened != c || a.Theirs.Received != 7 || a.Stop || !s.Works() {
		t.Fatalf("%+v, want an answer %+v", a, want)
	}
	return s, c
}

func receive(t *testing.T, s *Session, c *Conn, o Opening) Action {
	t.Helper()
	a, err := s.Received(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A side states its numbers for the next connection after its readers have stopped, and closes the earlier one.
func TestProposeStopsReaders(t *testing.T) {
	s, first := open(t)
	c := &Conn{Dialed: true}
	if a := s.Propose(c); a.Close != first || !a.Stop || a.Send != nil {
		t.Fatalf("%+v", a)
	}
	a := s.Stopped()
	want := Opening{Kind: Open, From: a1, To: b1, Bound: true, Generation: 2}
	if a.Send != c || fmt.Sprint(a.Opening) != fmt.Sprint(want) || a.Opened != nil || s.Works() {
		t.Fatalf("%+v, want %+v", a, want)
	}
	if a := receive(t, s, c, Opening{Kind: Open, From: b1, To: a1, Bound: true, Generation: 2, Received: 9}); a.Opened != c || a.Send != nil || a.Theirs.Received != 9 {
		t.Fatalf("%+v", a)
	}
}

// A connection that is lost or replaced while the readers of an earlier one stop is not used.
func TestLostWhileStopping(t *testing.T) {
	s, _ := open(t)
	second, third := &Conn{Dialed: true}, new(Conn)
	s.Propose(second)
	if a := receive(t, s, third, Opening{Kind: Open, From: b1, To: a1, Bound: true, Generation: 3}); a.Close != second || a.Stop || a.Send != nil {
		t.Fatalf("%+v", a)
	}
	if s.Lost(second); s.Current() != third {
		t.Fatal("an earlier connection has ended, and the current one is given up")
	}
	if s.Lost(third); s.Current() != nil || s.Works() {
		t.Fatal("the connection has ended and is the current one")
	}
	if a := s.Stopped(); a.Send != nil || a.Opened != nil {
		t.Fatalf("%+v", a)
	}
}

// Both sides propose at once. The proposal of the larger NodeID counts, without another one.
func TestBothPropose(t *testing.T) {
	a, b := NewSession(&Names{Self: a1}, false), NewSession(&Names{Self: b1}, true)
	ofA, ofB := [2]*Conn{{Dialed: true}, {}}, [2]*Conn{{}, {Dialed: true}} // the ends of a and b
	fromA, fromB := a.Propose(ofA[0]).Opening, b.Propose(ofB[1]).Opening
	if x := receive(t, b, ofA[1], fromA); x.Opening.Kind != Refused || x.Close != nil {
		t.Fatalf("the smaller side is not refused: %+v", x)
	}
	x := receive(t, a, ofB[0], fromB)
	if x.Opened != ofB[0] || x.Close != ofA[0] {
		t.Fatalf("the larger side is not accepted: %+v", x)
	}
	if x := receive(t, b, ofB[1], x.Opening); x.Opened != ofB[1] {
		t.Fatalf("%+v", x)
	}
	// The refusal was read from the connection before it was closed.
	if x := receive(t, a, ofA[0], Opening{Kind: Refused, From: b1, To: a1, Generation: 1}); x.Close != ofA[0] || x.Send != nil || !a.Works() {
		t.Fatalf("a late refusal: %+v", x)
	}
}

// A refused proposal is repeated at once with a generation that counts.
func TestRefused(t *testing.T) {
	s := NewSession(&Names{Self: a1}, false)
	c := &Conn{Dialed: true}
	s.Propose(c)
	a := receive(t, s, c, Opening{Kind: Refused, From: b1, To: a1, Generation: 9})
	want := Opening{Kind: Open, From: a1, To: b1, Generation: 10}
	if a.Send != c || fmt.Sprint(a.Opening) != fmt.Sprint(want) {
		t.Fatalf("%+v, want %+v", a, want)
	}
	if a := receive(t, s, c, Opening{Kind: Open, From: b1, To: a1, Generation: 10}); a.Opened != c {
		t.Fatalf("%+v", a)
	}
}

// The next proposal has a larger generation than those of the peer, used or not.
func TestProposeAfterThePeer(t *testing.T) {
	s, _ := open(t)
	c := new(Conn)
	receive(t, s, c, Opening{Kind: Open, From: b1, To: a1, Bound: true, Generation: 40})
	s.Stopped()
	s.Lost(c)
	if a := receive(t, s, new(Conn), Opening{Kind: Open, From: b1, To: a1, Bound: true, Generation: 30}); a.Opening.Kind != Refused || a.Opening.Generation != 40 {
		t.Fatalf("an older proposal: %+v", a)
	}
	s.Propose(new(Conn))
	if a := s.Stopped(); a.Opening.Generation != 41 {
		t.Fatalf("%+v, want generation 41", a)
	}
}

// The same opening on another connection is refused, since its numbers may be old. A late answer on a connection that was
// replaced changes nothing.
func TestRepeatedOpenings(t *testing.T) {
	s, c := open(t)
	if a := receive(t, s, new(Conn), Opening{Kind: Open, From: b1, Generation: 1}); a.Opening.Kind != Refused || a.Close != nil || s.Current() != c {
		t.Fatalf("%+v", a)
	}
	first, second := &Conn{Dialed: true}, &Conn{Dialed: true}
	s.Propose(first)
	s.Stopped()
	s.Propose(second)
	if a := receive(t, s, first, Opening{Kind: Open, From: b1, To: a1, Bound: true, Generation: 2}); a.Close != first || a.Opened != nil || s.Current() != second {
		t.Fatalf("%+v", a)
	}
}

// Openings of other links.
func TestOtherLinks(t *testing.T) {
	open1 := Opening{Kind: Open, From: b1, To: a1, Bound: true, Generation: 5}
	for name, test := range map[string]struct {
		o    Opening
		want string
	}{
		"to an ended link":                               {Opening{Kind: Open, From: b1, To: ID{0xa, 0}, Bound: true, Generation: 5}, "ended"},
		"to an earlier process":                          {Opening{Kind: Open, From: b1, To: ID{0xc, 1}, Bound: true, Generation: 5}, "ended"},
		"to a link that was not bound":                   {Opening{Kind: Open, From: b1, To: ID{0xa, 0}, Generation: 5}, "refused"},
		"of an earlier link":                             {Opening{Kind: Open, From: ID{0xb, 0}, Generation: 5}, "close"},
		"of a later link":                                {Opening{Kind: Open, From: b2, Generation: 5}, "end"},
		"of another process":                             {Opening{Kind: Open, From: ID{0xd, 1}, Generation: 5}, "refused"},
		"of another process, that may be an earlier one": {Opening{Kind: Open, From: ID{0xd, 1}, To: a1, Bound: true, Generation: 5}, "refused"},
		"of the peer":                                    {open1, "accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t)
			c := new(Conn)
			a := receive(t, s, c, test.o)
			got := "accepted"
			switch {
			case a.End != nil:
				got = "end"
			case a.Send == c && a.Opening.Kind == Ended && a.Opening.From == test.o.To && a.Opening.To == test.o.From:
				got = "ended"
			case a.Send == c && a.Opening.Kind == Refused && a.Opening.From == a1:
				got = "refused"
			case a.Close == c:
				got = "close"
			}
			if got != test.want || (got == "accepted") != a.Stop {
				t.Errorf("%s: %+v, want %s", got, a, test.want)
			}
		})
	}
}

// Another process ends the link only with its answer to a refusal on the same connection, after the peer was bound.
func TestAnotherProcess(t *testing.T) {
	other, c := ID{0xd, 1}, new(Conn)
	s := NewSession(&Names{Self: a1}, false)
	s.Propose(&Conn{Dialed: true})
	s.Propose(&Conn{Dialed: true}) // generation 2
	if a := receive(t, s, c, Opening{Kind: Open, From: other, Generation: 1}); a.Opening.Kind != Refused {
		t.Fatalf("%+v", a)
	}
	receive(t, s, new(Conn), Opening{Kind: Open, From: b1, Generation: 3}) // binds b1
	answer := Opening{Kind: Open, From: other, To: a1, Generation: 4}
	if a := receive(t, s, c, answer); a.End != nil || a.Opening.Kind != Refused {
		t.Fatalf("an answer from before b1 was bound: %+v", a)
	}
	if a := receive(t, s, c, answer); a.End == nil {
		t.Fatalf("an answer after b1 was bound: %+v", a)
	}
}

// An answer that a link has ended counts if it is about the peer.
func TestEnded(t *testing.T) {
	s, _ := open(t)
	c := &Conn{Dialed: true}
	s.Propose(c)
	s.Stopped()
	if a := receive(t, s, new(Conn).dialed(), Opening{Kind: Ended, From: b2, To: a1}); a.End != nil || a.Close == nil {
		t.Fatalf("another link has ended: %+v", a)
	}
	if a := receive(t, s, c, Opening{Kind: Ended, From: b1, To: a1, Received: 12}); a.End == nil || a.Theirs.Received != 12 {
		t.Fatalf("%+v", a)
	}
	s = NewSession(&Names{Self: a1}, false)
	s.Propose(c)
	if a := receive(t, s, c, Opening{Kind: Ended, From: b1, To: a1}); a.End != nil || a.Close != c || s.Current() != nil {
		t.Fatalf("the end of a link that this side has not used: %+v", a)
	}
}

func (c *Conn) dialed() *Conn {
	c.Dialed = true
	return c
}

// The lanes of a link have the same peer. A connection of another lane with another process is not used.
func TestLanesShareTheirPeer(t *testing.T) {
	names := &Names{Self: a1}
	control, data := NewSession(names, false), NewSession(names, false)
	dialed, proposed := &Conn{Dialed: true}, new(Conn)
	data.Propose(dialed)
	receive(t, control, new(Conn), Opening{Kind: Open, From: b1, Generation: 1})
	if a := receive(t, data, dialed, Opening{Kind: Open, From: ID{0xd, 1}, To: a1, Generation: 1}); a.Close != dialed || a.Opened != nil || data.Current() != nil {
		t.Fatalf("an answer of another process: %+v", a)
	}
	names.Peer = ID{}
	data = NewSession(names, false)
	data.reading, data.halting = true, true
	receive(t, data, proposed, Opening{Kind: Open, From: ID{0xd, 1}, Generation: 1})
	names.Peer = b1
	if a := data.Stopped(); a.Close != proposed || a.Send != nil || a.Opened != nil || data.Current() != nil {
		t.Fatalf("a proposal of another process: %+v", a)
	}
}

// A tombstone answers for its link alone.
func TestTombstone(t *testing.T) {
	s := Tombstone{Names{Self: a1, Peer: b1}, 33}
	if o, ok := s.Answer(&Opening{Kind: Open, From: b1, To: a1, Bound: true}); !ok || fmt.Sprint(o) != fmt.Sprint(Opening{Kind: Ended, From: a1, To: b1, Received: 33}) {
		t.Errorf("%+v, %v", o, ok)
	}
	for _, o := range []Opening{{Kind: Open, From: b2, To: a1}, {Kind: Open, From: b1, To: a2}, {Kind: Refused, From: b1, To: a1}} {
		if _, ok := s.Answer(&o); ok {
			t.Errorf("it answers %+v", o)
		}
	}
}

// Openings that no correct peer sends are named. Those without end on one connection close it.
func TestHostileOpenings(t *testing.T) {
	dialed := func(s *Session) *Conn {
		c := &Conn{Dialed: true}
		s.Propose(c)
		s.Stopped()
		return c
	}
	accepted := func(*Session) *Conn { return new(Conn) }
	current := func(s *Session) *Conn { return s.Current() }
	for want, test := range map[string]struct {
		on func(*Session) *Conn
		o  Opening
	}{
		"without the name of its link": {accepted, Opening{Kind: Open}},
		"an opening of generation 18446744073709551615, and the largest before is 1": {accepted, Opening{Kind: Open, From: b1, Generation: 1<<64 - 1}},
		"an opening of generation 9000000000, and the largest before is 2":           {dialed, Opening{Kind: Refused, From: b1, To: a1, Generation: 9e9}},
		"a second proposal on a connection that was accepted":                        {current, Opening{Kind: Open, From: b1, Generation: 2}},
		"an opening of kind 2 on a connection that the peer has made":                {accepted, Opening{Kind: Refused, From: b1}},
		"an opening of kind 3 on a connection that the peer has made":                {accepted, Opening{Kind: Ended, From: b1, To: a1}},
		"an opening of kind 0 on a connection that this side has made":               {dialed, Opening{From: b1}},
		"an answer of generation 1 to a proposal of generation 2":                    {dialed, Opening{Kind: Open, From: b1, To: a1, Generation: 1}},
		"an answer to link 2 of process a, and link 1 of process a has asked":        {dialed, Opening{Kind: Open, From: b1, To: a2, Generation: 2}},
		"a refusal of link 2 of process a, and link 1 of process a has asked":        {dialed, Opening{Kind: Refused, From: b1, To: a2, Generation: 2}},
	} {
		s, _ := open(t)
		_, err := s.Received(test.on(s), test.o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	s, _ := open(t)
	c := new(Conn)
	for range refusalsMax {
		if a := receive(t, s, c, Opening{Kind: Open, From: b1, Generation: 1}); a.Close != nil {
			t.Fatal("it is closed")
		}
	}
	if a := receive(t, s, c, Opening{Kind: Open, From: b1, Generation: 1}); a.Close != c || a.Send != nil {
		t.Errorf("it is not closed: %+v", a)
	}
	c = dialed(s)
	for range refusalsMax {
		receive(t, s, c, Opening{Kind: Refused, From: b1, To: a1, Generation: 1})
	}
	if a := receive(t, s, c, Opening{Kind: Refused, From: b1, To: a1, Generation: 1}); a.Close != c || a.Send != nil || s.Current() != nil {
		t.Errorf("it is not closed: %+v", a)
	}
	_, err := NewSession(&Names{Self: a1}, false).Received(new(Conn), Opening{Kind: Open, From: b1, Generation: generationStep})
	must(t, err)
}
