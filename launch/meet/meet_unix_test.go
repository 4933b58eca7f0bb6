//go:build linux || darwin || freebsd

package meet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar/launch"
)

// A manager is a process manager that speaks PMI-1. The other ranks have reached the fence.
type manager struct {
	values map[string]string
	fences int
}

// serve answers the requests of a rank.
func (m *manager) serve(t *testing.T, conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		fields := map[string]string{}
		for _, field := range strings.Fields(lines.Text()) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		var answer string
		switch fields["cmd"] {
		case "init":
			answer = "response_to_init rc=0 pmi_version=1 pmi_subversion=1"
		case "get_maxes":
			answer = "maxes kvsname_max=64 keylen_max=64 vallen_max=1024"
		case "get_appnum":
			answer = "appnum appnum=-1"
		case "get_my_kvsname":
			answer = "my_kvsname kvsname=kvs"
		case "put":
			m.values[fields["key"]] = fields["value"]
			answer = "put_result rc=0"
		case "barrier_in":
			m.fences++
			answer = "barrier_out"
		case "get":
			answer = "get_result rc=0 value=" + m.values[fields["key"]]
		case "finalize":
			answer = "finalize_ack"
		default:
			t.Errorf("unknown request %q", lines.Text())
			return
		}
		if _, err := fmt.Fprintf(conn, "cmd=%s\n", answer); err != nil {
			t.Error(err)
			return
		}
	}
}

// meetOverPMI lets a rank meet by a process manager.
func meetOverPMI(t *testing.T, m *manager, p launch.Process, options Options) (World, error) {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(pair[1])
	file := os.NewFile(uintptr(pair[1]), "manager")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]int{"PMI_FD": pair[0], "PMI_RANK": p.Rank, "PMI_SIZE": p.Size} {
		t.Setenv(name, strconv.Itoa(value))
	}
	before := m.fences
	var served sync.WaitGroup
	served.Go(func() { m.serve(t, conn) })
	met, err := Meet(t.Context(), p, options)
	served.Wait()
	if err == nil && m.fences != before+1 {
		t.Errorf("rank %d has met after %d fences, want 1", p.Rank, m.fences-before)
	}
	return met, err
}

func ofMPICH(rank int) launch.Process {
	return launch.Process{Launcher: launch.PMI, Rank: rank, Size: 4, Host: -1, HasPMI: true}
}

// A rank tells the others over PMI, too, if its seed cannot start or be reached. No error contains the token.
func TestMeetOverPMIFails(t *testing.T) {
	const secret = "secret"
	starts := func(context.Context, Seed) (string, error) { return "h:1234", nil }
	for _, test := range []struct {
		name  string
		start func(context.Context, Seed) (string, error)
		addrs []string
		want  string
	}{
		{"no seed", func(context.Context, Seed) (string, error) {
			return "", errors.New("no space left: " + strings.Repeat("x", 2000))
		}, []string{"h:1234"}, "no space left: xxx"},
		{"no address", starts, nil, "set NEXAR_ADVERTISE"},
		{"many addresses", starts, slices.Repeat([]string{"[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:12345"}, 100), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := &manager{values: map[string]string{}}
			meeting := Options{NewToken: func() string { return secret }, Start: test.start, Addrs: func(string) []string { return test.addrs }}
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
	for _, garbage := range []string{`[{"Rank":0,"Token":"secret"}]`, `[{"Token":"secret","Seeds":["h:1"`, `[]`} {
		m := &manager{values: map[string]string{"nexar-seed-0": garbage}}
		if _, err := meetOverPMI(t, m, ofMPICH(1), Options{}); err == nil || strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "job of pmi: ") {
			t.Errorf("announcement %s: error %v, want one of the job without the token", garbage, err)
		}
	}
}

// Several seeds of two jobs of MPICH, which have no names, have different ports.
func TestMeetOverPMISeveralSeeds(t *testing.T) {
	const others = `[{"Rank":%d,"Size":4,"Seeds":["h%[1]d:1"]}]`
	m := &manager{values: map[string]string{"nexar-seed-1": fmt.Sprintf(others, 1), "nexar-seed-2": fmt.Sprintf(others, 2)}}
	var ports []int
	for range 2 {
		meeting := Options{Seeds: 3, Token: "secret", Listen: "127.0.0.1", Advertise: "h0:1", Addrs: func(addr string) []string {
			host, text, err := net.SplitHostPort(addr)
			port, _ := strconv.Atoi(text)
			if ports = append(ports, port); host != "h0" || err != nil {
				t.Errorf("asked for the addresses of %q, %v, want those of h0", addr, err)
			}
			return []string{addr, address("h0.other", port)}
		}}
		meeting.Start = func(_ context.Context, s Seed) (string, error) {
			port := ports[len(ports)-1]
			if s.Listen != address("127.0.0.1", port) || s.Self != address("h0", port) || !slices.Equal(s.Peers, []string{s.Self, "h1:1", "h2:1"}) {
				t.Errorf("the seed starts as %+v, want the port %d", s, port)
			}
			l, err := net.Listen("tcp", s.Listen) // until the other job has met, too
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return s.Listen, errors.Join(err, s.State.Close())
		}
		if _, err := meetOverPMI(t, m, ofMPICH(0), meeting); err != nil {
			t.Fatal(err)
		}
	}
	if len(ports) != 2 || ports[0] == ports[1] {
		t.Errorf("the seeds of two jobs have the ports %v, want different ones", ports)
	}
}

// A process that is alone needs no process manager. PMI_FD may be left over.
func TestMeetAloneWithPMI(t *testing.T) {
	t.Setenv("PMI_FD", "999")
	world, err := Meet(t.Context(), launch.Process{Launcher: launch.PMI, Size: 1, Host: -1, HasPMI: true}, Options{
		Token: "secret", Start: func(context.Context, Seed) (string, error) { return "h:1234", nil }, Addrs: func(string) []string { return []string{"h:1234"} },
	})
	if err != nil || !slices.Equal(world.Seeds, []string{"h:1234"}) {
		t.Errorf("met at %v, %v, want the seed of this process", world.Seeds, err)
	}
}
