package meet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/launch"
)

// A meetingWorld is a world whose processes are goroutines.
type meetingWorld struct {
	size    int
	process func(rank int) launch.Process
	token   func(rank int) string // given to a rank; nil: none
	seeds   int
	start   func(rank int, s Seed) (addr string, err error) // nil: works
	timeout time.Duration

	mu      sync.Mutex
	started map[int]Seed // by rank
}

// meet lets all ranks meet. It releases the announcements after the last rank has returned.
func (w *meetingWorld) meet(t *testing.T) ([]World, []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(w.timeout, time.Minute))
	defer cancel()
	w.started = make(map[int]Seed)
	met, errs := make([]World, w.size), make([]error, w.size)
	var all sync.WaitGroup
	for rank := range w.size {
		all.Go(func() {
			m := Options{
				Seeds: w.seeds, NewToken: func() string { return fmt.Sprint("made by ", rank) }, Log: slog.New(slog.DiscardHandler),
				Addrs: func(addr string) []string {
					_, port, _ := net.SplitHostPort(addr)
					return []string{net.JoinHostPort("192.0.2."+strconv.Itoa(rank), port)}
				},
				Start: func(_ context.Context, s Seed) (string, error) {
					w.mu.Lock()
					w.started[rank] = s
					w.mu.Unlock()
					if (s.State != nil) != (len(s.Peers) > 0) {
						t.Errorf("a seed with %d peers has the directory %v", len(s.Peers), s.State)
					}
					if err := s.State.Close(); err != nil {
						t.Error(err)
					}
					if w.start != nil {
						return w.start(rank, s)
					}
					host, port, err := net.SplitHostPort(s.Listen)
					if port == "0" {
						port = "1234"
					}
					return net.JoinHostPort(host, port), err
				},
			}
			if w.token != nil {
				m.Token = w.token(rank)
			}
			met[rank], errs[rank] = Meet(ctx, w.process(rank), m)
		})
	}
	all.Wait()
	for _, m := range met {
		m.Release()
	}
	return met, errs
}

// onOneHost returns a process of a world on one host. Each test has a job of its own.
func onOneHost(t *testing.T, size int) func(rank int) launch.Process {
	return func(rank int) launch.Process {
		return launch.Process{Launcher: "torchrun", Job: fmt.Sprint(t.Name(), os.Getpid()), Rank: rank, Size: size, LocalRank: rank, LocalSize: size, Hosts: []string{"localhost"}}
	}
}

// onHosts returns a process of a world with one process on each host.
func onHosts(t *testing.T, size int) func(rank int) launch.Process {
	var hosts []string
	for i := range size {
		hosts = append(hosts, fmt.Sprint("n", i))
	}
	return func(rank int) launch.Process {
		return launch.Process{Launcher: "slurm", Job: t.Name(), Rank: rank, Size: size, LocalSize: 1, Hosts: hosts, Host: rank}
	}
}

func sameToken(int) string { return "secret" }

// checkAgree demands that all ranks have met at the same seeds with the same token.
func checkAgree(t *testing.T, met []World, errs []error) {
	t.Helper()
	for rank, m := range met {
		if errs[rank] != nil {
			t.Fatalf("rank %d: %v", rank, errs[rank])
		}
		if !slices.Equal(m.Seeds, met[0].Seeds) || m.Token != met[0].Token || m.Token == "" || m.Shared != met[0].Shared {
			t.Errorf("rank %d has met at %v (shared: %v), rank 0 at %v (shared: %v), or the tokens differ", rank, m.Seeds, m.Shared, met[0].Seeds, met[0].Shared)
		}
	}
}

// TestMeetOnOneHost: the processes of one host exchange the address of the seed and a token.
func TestMeetOnOneHost(t *testing.T) {
	needSockets(t)
	w := meetingWorld{size: 4, process: onOneHost(t, 4)}
	met, errs := w.meet(t)
	checkAgree(t, met, errs)
	if want := []string{"127.0.0.1:1234"}; !slices.Equal(met[3].Seeds, want) || met[3].Shared || met[3].Token != "made by 0" {
		t.Errorf("met at %v with %q, want %v", met[3].Seeds, met[3].Token, want)
	}
	if len(w.started) != 1 || w.started[0].Listen != "127.0.0.1:0" {
		t.Errorf("seeds started: %v, want one of rank 0 on loopback", w.started)
	}
}

// TestMeetAlone: a world of one needs neither an exchange nor a secret.
func TestMeetAlone(t *testing.T) {
	w := meetingWorld{size: 1, process: func(int) launch.Process {
		return launch.Process{Launcher: "torchrun", Job: t.Name(), Size: 1, Hosts: []string{"n0"}}
	}}
	met, errs := w.meet(t)
	checkAgree(t, met, errs)
}

// TestMeetSeveralSeeds: three processes run seeds that know each other.
func TestMeetSeveralSeeds(t *testing.T) {
	for name, process := range map[string]func(int) launch.Process{"one host": onOneHost(t, 4), "by name": onHosts(t, 4)} {
		t.Run(name, func(t *testing.T) {
			if name == "one host" {
				needSockets(t)
			}
			w := meetingWorld{size: 4, process: process, seeds: 3, token: sameToken}
			met, errs := w.meet(t)
			checkAgree(t, met, errs)
			if len(met[0].Seeds) != 3 || len(w.started) != 3 || met[0].Shared {
				t.Fatalf("met at %v (shared: %v), %d seeds started, want 3", met[0].Seeds, met[0].Shared, len(w.started))
			}
			for rank, s := range w.started {
				if s.Self != met[0].Seeds[rank] || !slices.Equal(s.Peers, met[0].Seeds) || s.Token != "secret" {
					t.Errorf("seed of rank %d: %+v, want peers %v", rank, s, met[0].Seeds)
				}
			}
		})
	}
}

// TestMeetByName: processes of several hosts derive the addresses of the seed from the job, and rank 0 uses the first port that is free.
func TestMeetByName(t *testing.T) {
	var tried []string
	w := meetingWorld{size: 3, process: onHosts(t, 3), token: sameToken, start: func(_ int, s Seed) (string, error) {
		tried = append(tried, s.Listen)
		if len(tried) < 3 {
			return "", &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
		}
		return "n0:1", nil
	}}
	met, errs := w.meet(t)
	checkAgree(t, met, errs)
	if len(tried) != 3 || !met[0].Shared {
		t.Errorf("rank 0 tried %v (shared: %v), want three ports", tried, met[0].Shared)
	}
	for i, listen := range tried {
		if met[2].Seeds[i] != "n0"+listen {
			t.Errorf("the seed tried %s, others look at %s", listen, met[2].Seeds[i])
		}
	}
}

// TestMeetErrors: each error says what is missing, and the ranks that do not run the seed learn why it has not started.
func TestMeetErrors(t *testing.T) {
	busy := func(int, Seed) (string, error) { return "", syscall.EADDRINUSE }
	broken := func(int, Seed) (string, error) { return "", errors.New("no space left") }
	sized := func(rank int) launch.Process {
		p := onOneHost(t, 3)(rank)
		if rank == 2 {
			p.Size, p.LocalSize = 4, 4
		}
		return p
	}
	nameless := func(rank int) launch.Process {
		return launch.Process{Launcher: "openmpi", Job: t.Name(), Rank: rank, Size: 2, LocalSize: 1}
	}
	firstHost := func(rank int) launch.Process {
		return launch.Process{Launcher: "torchrun", Job: t.Name(), Rank: rank, Size: 4, LocalRank: rank % 2, LocalSize: 2, Hosts: []string{"n0"}, Host: rank / 2}
	}
	onlyFirst := func(rank int) string { return []string{"secret", ""}[min(rank, 1)] }
	for name, test := range map[string]struct {
		w    *meetingWorld
		rank int // whose error is checked
		want string
	}{
		"no secret":    {&meetingWorld{size: 2, process: onHosts(t, 2)}, 1, "have no secret: put 'export NEXAR_CLUSTER_TOKEN=$(nexar token)' into the batch script"},
		"no address":   {&meetingWorld{size: 2, process: nameless, token: sameToken}, 1, "openmpi does not tell its processes the address of rank 0: start a seed by 'nexar seed --world 2'"},
		"ports in use": {&meetingWorld{size: 2, process: onHosts(t, 2), token: sameToken, start: busy}, 0, "in use on this host"},
		"odd job": {&meetingWorld{size: 1, process: func(int) launch.Process {
			p := onOneHost(t, 2)(1)
			p.Job = "a\x1bb" + strings.Repeat("x", 1000)
			return p
		}, timeout: time.Millisecond}, 0, `job "a\x1bbxx`},
		"even number of seeds":  {&meetingWorld{size: 4, process: onHosts(t, 4), token: sameToken, seeds: 2}, 3, "2 seeds: expected 1, 3 or 5"},
		"seeds on other hosts":  {&meetingWorld{size: 4, process: firstHost, token: sameToken, seeds: 3}, 3, "3 seeds, but torchrun names 1 of the hosts, with 2 processes"},
		"too many seeds":        {&meetingWorld{size: 2, process: onHosts(t, 2), token: sameToken, seeds: 3}, 0, "3 seeds in a world of 2 processes"},
		"broken seed":           {&meetingWorld{size: 2, process: onOneHost(t, 2), start: broken}, 1, "rank 0 could not start the seed of this world: no space left"},
		"broken seed of rank 0": {&meetingWorld{size: 2, process: onOneHost(t, 2), start: broken}, 0, "no space left"},
		"sizes":                 {&meetingWorld{size: 3, process: sized}, 2, "rank 0 has been told that the world has 3 processes, rank 2 that it has 4"},
		"token of one":          {&meetingWorld{size: 2, process: onOneHost(t, 2), token: onlyFirst}, 1, "rank 0 has a token and rank 1 has none"},
		"token of the other":    {&meetingWorld{size: 2, process: onOneHost(t, 2), token: func(rank int) string { return onlyFirst(1 - rank) }}, 1, "rank 1 has a token and rank 0 has none"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.w.process(0).OneHost() {
				needSockets(t)
			}
			_, errs := test.w.meet(t)
			if err := errs[test.rank]; err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("rank %d: error %v, want one with %q", test.rank, err, test.want)
			}
		})
	}
}

// TestMeetTwice: two processes that claim the same rank, and a process whose rank 0 never comes.
func TestMeetTwice(t *testing.T) {
	needSockets(t)
	first := func(int) launch.Process { return onOneHost(t, 2)(0) }
	w := meetingWorld{size: 2, process: first}
	if _, errs := w.meet(t); errs[0] == nil == (errs[1] == nil) || !strings.Contains(fmt.Sprint(errs), fmt.Sprintf("process %d of this host says that it is the one of job %s that runs seed 0: two processes have the same rank", os.Getpid(), first(0).Job)) {
		t.Errorf("two processes with rank 0: errors %v, want one", errs)
	}
	w = meetingWorld{size: 1, timeout: 100 * time.Millisecond, process: func(int) launch.Process { return onOneHost(t, 2)(1) }}
	if _, errs := w.meet(t); !errors.Is(errs[0], context.DeadlineExceeded) || !strings.Contains(errs[0].Error(), "the address of seed 0") {
		t.Errorf("rank 1 without rank 0: error %v", errs[0])
	}
}

// TestJobsDoNotMeet: worlds of two jobs that start at the same time on one host have different seeds.
func TestJobsDoNotMeet(t *testing.T) {
	needSockets(t)
	job := func(name string) func(int) launch.Process {
		return func(rank int) launch.Process {
			p := onOneHost(t, 2)(rank)
			p.Job += name
			return p
		}
	}
	a := meetingWorld{size: 2, process: job("a"), token: func(int) string { return "of a" }}
	b := meetingWorld{size: 2, process: job("b"), token: func(int) string { return "of b" }}
	var both sync.WaitGroup
	for _, w := range []*meetingWorld{&a, &b} {
		both.Go(func() {
			met, errs := w.meet(t)
			if want := w.token(0); !reflect.DeepEqual(errs, []error{nil, nil}) || met[1].Token != want {
				t.Errorf("met with token %q, errors %v, want %q", met[1].Token, errs, want)
			}
		})
	}
	both.Wait()
}
