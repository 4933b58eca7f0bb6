//go:build linux || darwin || freebsd

package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// meetOverPMI lets a rank meet by a process manager in which the other ranks have reached the fence.
func meetOverPMI(t *testing.T, m *manager, p Process, meeting Meeting) (Met, error) {
	t.Helper()
	env, conn := connected(t, map[string]string{"PMI_RANK": fmt.Sprint(p.Rank), "PMI_SIZE": fmt.Sprint(p.Size)})
	for name, value := range env.Vars {
		t.Setenv(name, value)
	}
	var served sync.WaitGroup
	m.fence.Add(1)
	served.Go(func() { m.serve(t, conn) })
	defer served.Wait()
	before := m.fences.Load()
	met, err := p.Meet(t.Context(), meeting)
	if err == nil && m.fences.Load() != before+1 {
		t.Errorf("rank %d has met after %d fences, want 1", p.Rank, m.fences.Load()-before)
	}
	return met, err
}

func ofMPICH(rank int) Process {
	return Process{Launcher: PMIServer, Rank: rank, Size: 4, Host: -1, PMI: true}
}

// A rank whose seed cannot start, or cannot be reached, tells the others over PMI, too. No error contains the token.
func TestMeetOverPMIFails(t *testing.T) {
	const secret = "secret"
	starts := func(context.Context, Seed) (int, error) { return 1234, nil }
	for _, test := range []struct {
		name  string
		start func(context.Context, Seed) (int, error)
		addrs []string
		want  string
	}{
		{"no seed", func(context.Context, Seed) (int, error) {
			return 0, errors.New("no space left: " + strings.Repeat("x", 2000))
		}, []string{"h:1234"}, "no space left: xxx"},
		{"no address", starts, nil, "set NEXAR_ADVERTISE"},
		{"many addresses", starts, slices.Repeat([]string{"[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:12345"}, 100), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &manager{values: map[string]string{}, version: 1}
			meeting := Meeting{NewToken: func() string { return secret }, Start: test.start, Addrs: func(int) []string { return test.addrs }}
			for rank := range 2 {
				met, err := meetOverPMI(t, m, ofMPICH(rank), meeting)
				switch {
				case test.want == "" && (err != nil || met.Token != secret || len(met.Seeds) == 0):
					t.Errorf("rank %d: %d seeds, error %v, want a world with a token", rank, len(met.Seeds), err)
				case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret)):
					t.Errorf("rank %d: error %v, want %q", rank, err, test.want)
				}
			}
		})
	}
	for _, garbage := range []string{`{"Rank":0,"Token":"secret"}`, `{"Token":"secret","Seeds":["h:1"`} {
		m := &manager{values: map[string]string{"nexar-seed-0": garbage}, version: 1}
		if _, err := meetOverPMI(t, m, ofMPICH(1), Meeting{}); err == nil || strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "job of pmi: ") {
			t.Errorf("announcement %s: error %v, want one of the job without the token", garbage, err)
		}
	}
}

// Several seeds of two jobs of MPICH, which have no names, have different ports.
func TestMeetOverPMISeveralSeeds(t *testing.T) {
	const others = `{"Rank":%d,"Size":4,"Seeds":["h%[1]d:1"]}`
	m := &manager{values: map[string]string{"nexar-seed-1": fmt.Sprintf(others, 1), "nexar-seed-2": fmt.Sprintf(others, 2)}, version: 1}
	var ports []int
	for range 2 {
		meeting := Meeting{Seeds: 3, Token: "secret", Listen: "127.0.0.1", Addrs: func(port int) []string {
			ports = append(ports, port)
			return []string{address("h0", port), address("h0.other", port)}
		}}
		meeting.Start = func(_ context.Context, s Seed) (int, error) {
			port := ports[len(ports)-1]
			if s.Listen != address("127.0.0.1", port) || s.Self != address("h0", port) || !slices.Equal(s.Peers, []string{s.Self, "h1:1", "h2:1"}) {
				t.Errorf("the seed starts as %+v, want the port %d", s, port)
			}
			l, err := net.Listen("tcp", s.Listen) // until the other job has met, too
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return port, err
		}
		if _, err := meetOverPMI(t, m, ofMPICH(0), meeting); err != nil {
			t.Fatal(err)
		}
	}
	if len(ports) != 2 || ports[0] == ports[1] {
		t.Errorf("the seeds of two jobs have the ports %v, want different ones", ports)
	}
}
