package campaign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/bench/results"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSettings(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range Settings(2) {
		if seen[s.Name] {
			t.Errorf("two settings are named %s", s.Name)
		}
		seen[s.Name] = true
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
			// A system that spins yields the processor only where ranks share one.
			words := strings.Join(slices.Concat(system.Env, system.Flags), " ")
			yields := strings.Contains(words, "WAIT_MODE=1") || strings.Contains(words, "mpi_yield_when_idle 1") || strings.Contains(words, "BEFORE_YIELD=1")
			if mpi := names[system.Name] && slices.Contains([]string{progIntel, progOpenMPI, progMPICH}, system.Program); mpi && yields != (s.Ranks > 2) {
				t.Errorf("%s, %s: yields is %v with %d ranks on 2 processors", s.Name, system.Name, yields, s.Ranks)
			}
		}
	}
	if _, err := Find(Settings(2), []string{"shm-4", "no-such"}); err == nil {
		t.Error("Find of an unknown setting: no error")
	}
	if got, err := Find(Settings(2), []string{"tcp-4", "shm-4"}); err != nil || len(got) != 2 || got[0].Name != "tcp-4" {
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
	s := Schedule{Sizes: []int{8, 64 << 20}, Budget: 0.5}
	if got, want := strings.Join(s.flags("barrier"), " "), "-ops barrier -sizes 8,67108864 -untouched 1 -budget 0.5 -warm 0.05"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRoundTrip checks that the probe ends, and that a round trip takes more than the access to a cache and less than a
// sleep.
func TestRoundTrip(t *testing.T) {
	if got := RoundTrip(); got != 0 && (got < 0.01 || got > 50) {
		t.Errorf("got %v µs, want 0 or from 0.01 to 50", got)
	}
}

// plain is a network without namespaces.
type plain struct{}

func (plain) Addr(host int) string       { return fmt.Sprint("10.0.0.", host+1) }
func (plain) Prefix(host int) []string   { return []string{"nsenter", fmt.Sprint("n", host), "--"} }
func commandOf(p process) (words string) { return strings.Join(append(p.env, p.args...), " ") }

func TestLaunch(t *testing.T) {
	l := launch{
		work: []string{"-ops", "barrier"}, dir: "/tmp/run", network: plain{}, agent: "/tmp/run/agent.sh", token: "T",
		programs: &Programs{
			Path: map[string]string{progNexar: "/b/nexar", progIntel: "/b/impi", progOpenMPI: "/b/mpi", progGloo: "/b/gloo", progTorch: "/py", progRust: "/b/rust"},
			Root: map[string]string{progIntel: "/p/impi", progOpenMPI: "/p/open"},
			Rank: "/b/rank", TorchScript: "/s/rank.py", Session: "/b/s.so",
		},
	}
	for _, test := range []struct {
		setting Setting
		name    string
		count   int
		last    string
		shown   string
	}{
		{sharedMemory(2, 2), progIntel, 1,
			"I_MPI_FABRICS=shm LD_PRELOAD=/b/s.so I_MPI_ROOT=/p/impi LD_LIBRARY_PATH=/p/impi/lib FI_PROVIDER_PATH=/p/impi/lib /p/impi/bin/mpiexec.hydra -n 2 /b/impi -ops barrier",
			"I_MPI_FABRICS=shm mpiexec.hydra -n 2 impi -ops barrier"},
		{sharedMemory(4, 2), progOpenMPI, 1,
			"LD_PRELOAD=/b/s.so /p/open/bin/mpirun -np 4 --mca btl self,sm --mca pml ob1 --oversubscribe --mca mpi_yield_when_idle 1 /b/mpi -ops barrier",
			"mpirun -np 4 --mca btl self,sm --mca pml ob1 --oversubscribe --mca mpi_yield_when_idle 1 mpi -ops barrier"},
		{overNetwork(2, 0, 2), progTorch, 2,
			"OMP_NUM_THREADS=1 /py /s/rank.py -ops barrier -rank 1 -ranks 2 -store /tmp/run -iface lo -first 127.0.0.1",
			"OMP_NUM_THREADS=1 py rank.py -ops barrier -rank 1 -ranks 2 -store $DIR -iface lo -first 127.0.0.1"},
		{overNetwork(2, 0, 2), "nexar-quic", 1,
			"NEXAR_TRANSPORTS=quic /b/nexar run --no-prefix -n 2 -- /b/rank -want quic+tls -ops barrier",
			"NEXAR_TRANSPORTS=quic nexar run --no-prefix -n 2 -- rank -want quic+tls -ops barrier"},
		{overNetwork(4, 2, 4), progGloo, 4,
			"nsenter n1 -- /b/gloo -ops barrier -rank 3 -ranks 4 -store /tmp/run -iface eth0 -first 10.0.0.1",
			"[host2] gloo -ops barrier -rank 3 -ranks 4 -store $DIR -iface eth0 -first 10.0.0.1"},
		{overNetwork(4, 2, 4), progIntel, 1,
			"I_MPI_FABRICS=ofi FI_PROVIDER=tcp FI_TCP_IFACE=eth0 LD_PRELOAD=/b/s.so I_MPI_ROOT=/p/impi LD_LIBRARY_PATH=/p/impi/lib FI_PROVIDER_PATH=/p/impi/lib nsenter n0 -- /p/impi/bin/mpiexec.hydra -n 4" +
				" -launcher rsh -launcher-exec /tmp/run/agent.sh -hosts 10.0.0.1:2,10.0.0.2:2 -iface eth0 /b/impi -ops barrier",
			"[host1] I_MPI_FABRICS=ofi FI_PROVIDER=tcp FI_TCP_IFACE=eth0 mpiexec.hydra -n 4" +
				" -launcher rsh -launcher-exec $DIR/agent.sh -hosts 10.0.0.1:2,10.0.0.2:2 -iface eth0 impi -ops barrier"},
		{overNetwork(4, 2, 4), "nexar-tcp", 5,
			"NEXAR_TRANSPORTS=tcp NEXAR_PLAIN_BULK=1 NEXAR_CLUSTER_TOKEN=T NEXAR_SEEDS=10.0.0.1:7945 NEXAR_RANK=3 nsenter n1 -- /b/rank -want tcp -ops barrier",
			"[host2] NEXAR_TRANSPORTS=tcp NEXAR_PLAIN_BULK=1 NEXAR_CLUSTER_TOKEN=$(nexar token) NEXAR_SEEDS=10.0.0.1:7945 NEXAR_RANK=3 rank -want tcp -ops barrier"},
	} {
		l.setting = test.setting
		i := slices.IndexFunc(test.setting.Systems, func(s System) bool { return s.Name == test.name })
		all := l.processes(test.setting.Systems[i])
		if len(all) != test.count {
			t.Errorf("%s, %s: got %d processes, want %d", test.setting.Name, test.name, len(all), test.count)
			continue
		}
		last := all[len(all)-1]
		if got, want := commandOf(last), test.last; got != want {
			t.Errorf("%s, %s: got\n%s\nwant\n%s", test.setting.Name, test.name, got, want)
		}
		if got := l.readable(last); got != test.shown {
			t.Errorf("%s, %s: readable returned\n%s\nwant\n%s", test.setting.Name, test.name, got, test.shown)
		}
	}
}

// TestSession checks that all ranks of a system are in one session, which is not that of the test.
func TestSession(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	rank := process{args: []string{"sh", "-c", "echo $X $(cut -d' ' -f6 /proc/self/stat)"}, env: []string{"X=it's"}}
	out, err := together([]process{rank, rank}).run(t.Context(), time.Minute)
	lines := distinct(string(out))
	if err != nil || len(lines) != 1 || !strings.HasPrefix(lines[0], "it's ") || strings.Count(string(out), "\n") != 2 {
		t.Fatalf("got %q, %v, want the same line from both ranks", out, err)
	}
	own, err := os.ReadFile("/proc/self/stat")
	if fields := strings.Fields(string(own)); err != nil || lines[0] == "it's "+fields[5] {
		t.Errorf("the ranks are in session %s, and the test is too (%v)", fields[5], err)
	}
}

func TestCleanEnv(t *testing.T) {
	got := cleanEnv([]string{"PATH=/bin", "NEXAR_LOG=debug", "OMPI_MCA_btl=x", "I_MPI_PIN=1", "GOMAXPROCS=1", "OMP_NUM_THREADS=9", "HOME=/"})
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
		{System: results.System{Name: "good", Label: "Good"}, Program: progGloo},
		{System: results.System{Name: "bad", Label: "Bad"}, Program: progRust, Env: []string{"BAD=1"}},
		{System: results.System{Name: "none", Label: "None"}, Program: progTorch},
	}}
	const script = `
[ -n "$BAD" ] && { echo '{"about":"bad"}'; echo oh no >&2; exit 3; }
while [ "$1" != -rank ]; do shift; done
[ "$2" = 0 ] && echo '{"about":"good"}'
echo "{\"op\":\"barrier\",\"bytes\":0,\"ranks\":2,\"rank\":$2,\"iters\":3,\"median_us\":1.5,\"wrong\":0}"
`
	turns, notes := 0, 0
	c := Campaign{
		Programs: fake(t, script), Schedule: Schedule{Sizes: []int{8}, Budget: 1}, Rounds: 3, Timeout: time.Minute,
		Progress: func(string, string, string, int) { turns++ }, Note: func(string) { notes++ },
	}
	f, err := c.Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	good, bad := 0, 0
	for _, e := range f.Entries {
		if e.System == "bad" && strings.Contains(e.Failed, "oh no") {
			bad++
		}
		if e.System == "good" && e.US == 1.5 && e.Op == "barrier" && (e.Before > 0) == (e.After > 0) {
			good++
		}
	}
	if good != 3 || bad != failuresMax || turns != 3+failuresMax || notes != bad {
		t.Errorf("got %d results, %d failures, %d turns and %d notes, want 3 results, and %d failures", good, bad, turns, notes, failuresMax)
	}
	if systems := f.Header.Systems; systems[0].About != "good" || systems[2].Missing != "get it" {
		t.Errorf("got the systems %+v, want the description of the first, and why the last is missing", systems)
	}
}

// TestTimeout checks that a run that hangs is killed and reported, with a process that has left its
// process group.
func TestTimeout(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	// The process outside the group writes to the file until it is killed.
	script := fmt.Sprintf("setsid sh -c 'while sleep 0.1; do echo x >> %s; done' & sleep 600", mark)
	began := time.Now()
	_, err := process{args: []string{"sh", "-c", script}}.run(t.Context(), time.Second)
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

// TestOneFails checks that the others are killed when one process has failed.
func TestOneFails(t *testing.T) {
	began := time.Now()
	out, err := together([]process{
		{args: []string{"sh", "-c", "echo first; exec sleep 600"}},
		{args: []string{"sh", "-c", "sleep 0.5; echo reason >&2; exit 7"}},
	}).run(t.Context(), time.Hour)
	if err == nil || !strings.Contains(err.Error(), "reason") || time.Since(began) > time.Minute || string(out) != "first\n" {
		t.Errorf("got %q, %v after %v, want an error within seconds", out, err, time.Since(began))
	}
	if _, err := (process{args: []string{"/no/such/program"}}).run(t.Context(), time.Hour); err == nil {
		t.Error("a program that does not exist: no error")
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := (process{args: []string{"sleep", "600"}}).run(ctx, time.Hour); err == nil {
		t.Error("a cancelled run: no error")
	}
}
