package lane

import (
	"errors"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// A session proposes one connection and accepts one, none while another one is in use, and proposes none while it accepts one.
func TestOneConnectionAtATime(t *testing.T) {
	for name, test := range map[string]struct {
		before  []bool // accepts, of what has begun before
		accepts bool
		want    error
	}{
		"accept while proposing":         {[]bool{false}, true, nil},
		"propose while proposing":        {[]bool{false}, false, ErrProposing},
		"propose while accepting":        {[]bool{true}, false, ErrAnswering},
		"accept while accepting":         {[]bool{true}, true, ErrConnected},
		"propose while doing both":       {[]bool{false, true}, false, ErrAnswering},
		"accept while doing both":        {[]bool{false, true}, true, ErrConnected},
		"propose when nothing has begun": {nil, false, nil},
	} {
		var s Session
		for _, accepts := range test.before {
			if _, err := s.Begin(accepts, 1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Begin(test.accepts, 2); err != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// A connection is not used if the link has used another one since it was proposed.
func TestClaimIsOld(t *testing.T) {
	var s Session
	first, err := s.Begin(false, 1)
	must(t, err)
	second, err := s.Begin(true, 2)
	must(t, err)
	must(t, s.Bind(second))
	if _, err := s.Begin(false, 3); err != ErrConnected {
		t.Errorf("a proposal beside the connection in use: %v, want %v", err, ErrConnected)
	}
	if err := s.Bind(first); err != ErrConnected {
		t.Errorf("beside the connection in use: %v, want %v", err, ErrConnected)
	}
	s.Use(&wire.Resume{Number: 7, From: wire.LinkID{Process: 2, Link: 1}})
	s.End()
	if err := s.Bind(first); err != ErrOld {
		t.Errorf("after the end of another connection: %v, want %v", err, ErrOld)
	}
	if s.Ended() != 1 || s.InUse() {
		t.Errorf("%d connections have ended, want 1; one is in use: %v", s.Ended(), s.InUse())
	}
}

// Whether a proposal belongs to the link, and whether the peer has lost the connection in use.
func TestCheck(t *testing.T) {
	self, peer := wire.LinkID{Process: 1, Link: 1}, wire.LinkID{Process: 2, Link: 5}
	s := Session{Self: self}
	s.Use(&wire.Resume{Number: 7, From: peer})
	for name, test := range map[string]struct {
		theirs       wire.Resume
		ended, lost  bool
		want         string
		isOld, isFor bool // ErrOld; IsForEarlier
	}{
		"the peer":                     {theirs: wire.Resume{Number: 8, From: peer, To: self}, lost: true},
		"the peer, before":             {theirs: wire.Resume{Number: 6, From: peer, To: self}, isOld: true},
		"its number in use":            {theirs: wire.Resume{Number: 7, From: peer, To: self}},
		"a later link of it":           {theirs: wire.Resume{Number: 9, From: wire.LinkID{Process: 2, Link: 6}}, lost: true, ended: true, want: "it has ended link 5, and this is its link 6"},
		"an earlier link of it":        {theirs: wire.Resume{Number: 4, From: wire.LinkID{Process: 2, Link: 3}}, isOld: true},
		"a link of it that has ended":  {theirs: wire.Resume{To: self}, ended: true, want: "it has ended the link"},
		"an earlier link of this side": {theirs: wire.Resume{Number: 8, From: peer, To: wire.LinkID{Process: 1, Link: 9}}, lost: true, isFor: true},
	} {
		ended, err := s.Check(&test.theirs)
		if ended != test.ended || errors.Is(err, ErrOld) != test.isOld || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: ended %v, %v; want %v, %q, old %v", name, ended, err, test.ended, test.want, test.isOld)
		}
		if got := s.IsLost(&test.theirs); got != test.lost {
			t.Errorf("%s: the connection is lost: %v, want %v", name, got, test.lost)
		}
		if got := s.IsForEarlier(&test.theirs); got != test.isFor {
			t.Errorf("%s: for an earlier link: %v, want %v", name, got, test.isFor)
		}
	}
}
