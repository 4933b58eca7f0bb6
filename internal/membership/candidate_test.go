package membership

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestProgressText(t *testing.T) {
	ranks := func(list ...int32) (c []Candidate) {
		for i, r := range list {
			c = append(c, Candidate{ID: NodeID{byte(i)}, Rank: r, Name: "a:1", Addr: "10.0.0.1:7000"})
		}
		return c
	}
	for _, test := range []struct {
		p             Progress
		text, missing string
	}{
		{Progress{World: 3}, "0 of 3 nodes joined", "3"},
		{Progress{Joined: 1, World: 3, Candidates: ranks(2)}, "1 of 3 nodes joined: rank 2 10.0.0.1:7000 (a:1)", "2 (rank 0, 1)"},
		{Progress{Joined: 1, World: 3, Candidates: ranks(AnyRank)}, "1 of 3 nodes joined: any rank 10.0.0.1:7000 (a:1)", "2"},
		{Progress{Joined: 2, World: 3, Candidates: ranks(2)}, "2 of 3 nodes joined: rank 2 10.0.0.1:7000 (a:1), and 1 more", "1"},
		{Progress{Joined: 1, World: 1, Candidates: ranks(0)}, "1 of 1 nodes joined: rank 0 10.0.0.1:7000 (a:1)", "0"},
		{Progress{Joined: 1, World: 100, Candidates: ranks(0)}, "1 of 100 nodes joined: rank 0 10.0.0.1:7000 (a:1)",
			"99 (rank 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, …)"},
	} {
		if got := test.p.String(); got != test.text {
			t.Errorf("%+v: text %q, want %q", test.p, got, test.text)
		}
		if got := test.p.Missing(); got != test.missing {
			t.Errorf("%+v: missing %q, want %q", test.p, got, test.missing)
		}
	}
}

// A NotFormedError names the nodes, with their ranks once these are given.
func TestNotFormedError(t *testing.T) {
	f, err := NewFormation(2, time.Minute, start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := f.Admit(start, node(i), AnyRank); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(f.Progress().Candidates[0].Rank), []string{"-1", "0"}[i]; got != want {
			t.Errorf("with %d nodes: rank %s, want %s", i+1, got, want)
		}
	}
	step := f.Gone(start, node(1).ID, "killed")
	e, ok := errors.AsType[*NotFormedError](step.Err)
	if !ok || e.Progress.Joined != 2 || e.Progress.World != 2 || len(e.Progress.Candidates) != 2 || e.Progress.Candidates[1].Rank != 1 {
		t.Errorf("error %#v, want a NotFormedError of 2 of 2 nodes", step.Err)
	}
	big, err := NewFormation(1000, time.Minute, start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := big.Admit(start, node(i), AnyRank); err != nil {
			t.Fatal(err)
		}
	}
	if p := big.Progress(); p.Joined != 100 || len(p.Candidates) != CandidatesMax {
		t.Errorf("%d nodes, %d candidates, want 100 and %d", p.Joined, len(p.Candidates), CandidatesMax)
	}
}
