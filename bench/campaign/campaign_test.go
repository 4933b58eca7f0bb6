package campaign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/bench/results"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSettings(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range Settings() {
		if seen[s.Name] {
			t.Errorf("two settings are named %s", s.Name)
		}
		seen[s.Name] = true
		if s.Hosts > 0 && s.Ranks%s.Hosts != 0 {
			t.Errorf("%s: %d ranks are not a multiple of %d hosts", s.Name, s.Ranks, s.Hosts)
		}
		names := make(map[string]bool)
		for _, system := range s.Systems {
			if names[system.Name] {
				t.Errorf("%s: two systems are named %s", s.Name, system.Name)
			}
			names[system.Name] = true
			if system.Ours && system.Want == "" {
				t.Errorf("%s, %s: names no expected transport", s.Name, system.Name)
			}
			if system.Ours && system.Encrypted != strings.Contains(system.Want, "+tls") {
				t.Errorf("%s, %s: Encrypted is %v, but the expected transport is %s", s.Name, system.Name, system.Encrypted, system.Want)
			}
		}
	}
	if len(Quick()) < 4 {
		t.Errorf("Quick returned %d settings, want at least 4", len(Quick()))
	}
	if _, err := Find([]string{"shm-4", "no-such"}); err == nil {
		t.Error("Find of an unknown setting: no error")
	}
	if got, err := Find([]string{"hosts-4x2", "shm-4"}); err != nil || len(got) != 2 || got[0].Name != "hosts-4x2" {
		t.Errorf("Find: got %+v, %v, want the two settings in the order of the names", got, err)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string][]int{
		"8": {8}, "1MiB,64KiB,8": {8, 64 << 10, 1 << 20}, "8,8": {8}, "": nil, "6": nil, "0": nil, "1TiB": nil, "8,x": nil,
	} {
		got, err := ParseSizes(text)
		if !reflect.DeepEqual(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	s := Schedule{Sizes: []int{8, 64 << 20}}
	if got, want := s.points(), "8:500:20,67108864:5:0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	last := 1 << 30
	for _, bytes := range DefaultSizes() {
		iters, _ := iterations(bytes)
		if iters < 3 || iters > last {
			t.Errorf("%d bytes: %d iterations, want from 3 to %d, the number of the next smaller size", bytes, iters, last)
		}
		last = iters
	}
}

// plain is a network without namespaces.
type plain struct{}

func (plain) Addr(host int) string       { return fmt.Sprint("10.0.0.", host+1) }
func (plain) Prefix(host int) []string   { return []string{"nsenter", fmt.Sprint("n", host), "--"} }
func system(s Setting, i int) System     { return s.Systems[i] }
func commandOf(p process) (words string) { return strings.Join(append(p.env, p.args...), " ") }

func TestLaunch(t *testing.T) {
	l := launch{
		schedule: Schedule{Sizes: []int{8}, Budget: 0.5}, dir: "/tmp/run", network: plain{}, agent: "/tmp/run/agent.sh", token: "T",
		programs: &Programs{
			Path: map[string]string{progNexar: "/b/nexar", progOpenMPI: "/b/mpi", progGloo: "/b/gloo", progTorch: "/py", progRust: "/b/rust"},
			Rank: "/b/rank", Mpirun: "/usr/bin/mpirun", TorchScript: "/s/rank.py",
		},
	}
	const work = "-ops barrier -points 8:500:20 -budget 0.5"
	for _, test := range []struct {
		setting Setting
		system  System
		count   int
		last    string
		shown   string
	}{
		{loopback(2), openMPI("x", "X", "btl", "self,tcp"), 1,
			"/usr/bin/mpirun --oversubscribe -np 2 --mca pml ob1 --mca btl self,tcp /b/mpi " + work,
			"mpirun --oversubscribe -np 2 --mca pml ob1 --mca btl self,tcp mpi " + work},
		{loopback(2), gloo(), 2, "/b/gloo " + work + " -rank 1 -ranks 2 -store /tmp/run -iface lo",
			"gloo " + work + " -rank 1 -ranks 2 -store $DIR -iface lo"},
		{loopback(2), torch(), 2, "OMP_NUM_THREADS=1 /py /s/rank.py " + work + " -rank 1 -ranks 2 -store /tmp/run -iface lo",
			"OMP_NUM_THREADS=1 py rank.py " + work + " -rank 1 -ranks 2 -store $DIR -iface lo"},
		{loopback(2), ours("q", "Q", "quic", "quic+tls", true), 1,
			"NEXAR_TRANSPORTS=quic /b/nexar run --no-prefix -n 2 -- /b/rank " + work + " -want quic+tls",
			"NEXAR_TRANSPORTS=quic nexar run --no-prefix -n 2 -- rank " + work + " -want quic+tls"},
		{oneProcess(4), system(oneProcess(4), 0), 1, "/b/rust -local 4 " + work, "rust -local 4 " + work},
		{oneProcess(4), system(oneProcess(4), 1), 1,
			"/b/rank -local 4 " + work + " -want mem", "rank -local 4 " + work + " -want mem"},
		{onHosts(2, 2), gloo(), 4, "nsenter n1 -- /b/gloo " + work + " -rank 3 -ranks 4 -store /tmp/run -iface eth0",
			"[host2] gloo " + work + " -rank 3 -ranks 4 -store $DIR -iface eth0"},
		{onHosts(2, 2), openMPI("x", "X"), 1,
			"nsenter n0 -- /usr/bin/mpirun --oversubscribe -np 4 --mca pml ob1 --host 10.0.0.1:2,10.0.0.2:2 --map-by slot" +
				" --mca plm_rsh_agent /tmp/run/agent.sh --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 /b/mpi " + work,
			"[host1] mpirun --oversubscribe -np 4 --mca pml ob1 --host 10.0.0.1:2,10.0.0.2:2 --map-by slot" +
				" --mca plm_rsh_agent $DIR/agent.sh --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 mpi " + work},
		{onHosts(2, 2), ours("t", "T", "tcp", "tcp", false), 3,
			"NEXAR_TRANSPORTS=tcp NEXAR_PLAIN_BULK=1 NEXAR_CLUSTER_TOKEN=T nsenter n1 -- /b/nexar run --no-prefix -n 2" +
				" --seed 10.0.0.1:7945 --world 4 --first-rank 2 -- /b/rank " + work + " -want tcp",
			"[host2] NEXAR_TRANSPORTS=tcp NEXAR_PLAIN_BULK=1 NEXAR_CLUSTER_TOKEN=$(nexar token) nexar run --no-prefix -n 2" +
				" --seed 10.0.0.1:7945 --world 4 --first-rank 2 -- rank " + work + " -want tcp"},
	} {
		l.setting = test.setting
		l.setting.Ops = []string{"barrier"}
		all := l.processes(test.system)
		if len(all) != test.count {
			t.Errorf("%s, %s: got %d processes, want %d", test.setting.Name, test.system.Name, len(all), test.count)
			continue
		}
		last := all[len(all)-1]
		if got := commandOf(last); got != test.last {
			t.Errorf("%s, %s: got\n%s\nwant\n%s", test.setting.Name, test.system.Name, got, test.last)
		}
		if got := l.readable(last); got != test.shown {
			t.Errorf("%s, %s: readable returned\n%s\nwant\n%s", test.setting.Name, test.system.Name, got, test.shown)
		}
	}
}

func TestCleanEnv(t *testing.T) {
	got := cleanEnv([]string{"PATH=/bin", "NEXAR_LOG=debug", "OMPI_MCA_btl=x", "GOMAXPROCS=1", "OMP_NUM_THREADS=9", "HOME=/"})
	if want := []string{"PATH=/bin", "HOME=/"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestField(t *testing.T) {
	const text = "processor\t: 0\nmodel name\t: A B: C\nmodel name\t: D\n"
	if got, want := field(text, "model name"), "A B: C"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := field(text, "flags"); got != "" {
		t.Errorf("got %q for a missing field, want none", got)
	}
}

func TestTail(t *testing.T) {
	var tl tail
	fmt.Fprintf(&tl, "%s\n", strings.Repeat("x", 2*stderrMax))
	fmt.Fprint(&tl, "one\n\ntwo\none\n")
	if got := tl.String(); len(got) > stderrMax || !strings.HasSuffix(got, "; one; two") {
		t.Errorf("got %d bytes that end in %q, want at most %d that end in both lines", len(got), got[max(0, len(got)-20):], stderrMax)
	}
}

// fake returns a shell script in place of the programs of Gloo and the Rust crate, and no torch.
func fake(t *testing.T, script string) *Programs {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return &Programs{Path: map[string]string{progGloo: path, progRust: path}, Missing: map[string]string{progTorch: "get it"}}
}

// TestMeasure measures a system that works, one that fails, and one that is not installed.
func TestMeasure(t *testing.T) {
	s := Setting{Name: "s", Title: "a setting", Ranks: 2, Ops: []string{"barrier"}, Systems: []System{
		gloo(), {System: results.System{Name: "bad", Label: "Bad"}, Program: progRust, Local: true}, torch(),
	}}
	// A program with -local runs all ranks and fails. A rank gets its number after -rank.
	const script = `
case "$*" in *-local*) echo '{"about":"bad"}'; echo oh no >&2; exit 3 ;; esac
while [ "$1" != -rank ]; do shift; done
[ "$2" = 0 ] && echo '{"about":"good"}'
echo "{\"op\":\"barrier\",\"bytes\":0,\"ranks\":2,\"rank\":$2,\"iters\":3,\"median_us\":1.5,\"wrong\":0}"
`
	runs, notes := 0, 0
	c := Campaign{
		Programs: fake(t, script), Schedule: Schedule{Sizes: []int{8}, Budget: 1}, Rounds: 3, Timeout: time.Minute,
		Progress: func(string, string, int) { runs++ }, Note: func(string) { notes++ },
	}
	f, err := c.Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	good, bad := f.Cell(s.Systems[0].System, "barrier", 0), 0
	for _, e := range f.Entries {
		if e.System == "bad" && strings.Contains(e.Failed, "oh no") {
			bad++
		}
	}
	if good.Rounds != 3 || good.US != 1.5 || bad != failuresMax || runs != 3+failuresMax || notes != bad {
		t.Errorf("got %+v, %d failures, %d runs and %d notes, want 3 rounds, and %d failures", good, bad, runs, notes, failuresMax)
	}
	if got := f.Header.Systems[0].About; got != "good" {
		t.Errorf("description of the system: got %q, want good", got)
	}
}

// TestTimeout checks that a run that hangs is killed and reported, with a process that has left its
// process group.
func TestTimeout(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	// The process outside the group writes to the file until it is killed.
	script := fmt.Sprintf("setsid sh -c 'while sleep 0.1; do echo x >> %s; done' & sleep 600", mark)
	began := time.Now()
	_, err := runAll(t.Context(), []process{{args: []string{"sh", "-c", script}}}, time.Second)
	if err == nil || !strings.Contains(err.Error(), "not finished within 1s") || time.Since(began) > time.Minute {
		t.Errorf("got error %v after %v, want one that names the timeout", err, time.Since(began))
	}
	before, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if after, err := os.ReadFile(mark); err != nil || len(after) > len(before) {
		t.Errorf("a process of the run still writes: %d bytes, then %d, %v", len(before), len(after), err)
	}
}

// TestOneFails checks that the others are killed after one process has failed.
func TestOneFails(t *testing.T) {
	began := time.Now()
	out, err := runAll(t.Context(), []process{
		{args: []string{"sh", "-c", "echo first; exec sleep 600"}},
		{args: []string{"sh", "-c", "echo reason >&2; exit 7"}},
		{args: []string{"/no/such/program"}},
	}, time.Hour)
	if err == nil || time.Since(began) > time.Minute || string(out) != "first\n" {
		t.Errorf("got %q, %v after %v, want an error within seconds", out, err, time.Since(began))
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := runAll(ctx, []process{{args: []string{"sleep", "600"}}}, time.Hour); err == nil {
		t.Error("a cancelled run: no error")
	}
}
