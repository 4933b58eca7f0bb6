package attack

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// clockAttacks are attacks on the wall clock of a rank.
func clockAttacks() []attack {
	return []attack{
		{"clock jumps", "a rank with a wall clock that jumps by hours, both ways, stays in the world", buildTime, false, attackClockJumps},
		{"clock a day off", "a node with a wall clock that is a day off gets an error that says so, and one that is hours ahead joins", buildTime, false, attackClockOff},
	}
}

// buildTime limits the time for rebuilding the standard library on a busy machine.
const buildTime = 150 * time.Second

// clockVariable has the name of a file of 8 bytes: the number of seconds that a shiftedProgram
// adds to its wall clock.
const clockVariable = "ATTACKED_CLOCK"

// shiftSource is added to package time.
const shiftSource = `package time

import (
	"syscall"
	"unsafe"
)

var clockShift = mapClockShift()

func mapClockShift() *int64 {
	name, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&b[0]))
}
`

// A shiftedProgram is the test binary, built with a package time that adds an offset to the
// wall clock. The monotonic clock does not change, as on a host when an operator sets the
// clock.
type shiftedProgram struct {
	t      *testing.T
	binary string
	file   string
}

// newShiftedProgram builds the program. Only the first build is slow, later ones use the build
// cache.
func newShiftedProgram(t *testing.T) *shiftedProgram {
	t.Helper()
	_, err := exec.LookPath("go")
	require.Have(t, "go", err == nil, "no go command to build a program with a shifted clock")
	dir := t.TempDir()
	s := &shiftedProgram{t: t, binary: filepath.Join(dir, "attack.test"), file: filepath.Join(dir, "clock")}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	const before = "sec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), before) != 1 {
		t.Fatalf("time.Now of this version of Go does not have %q once: the test has to be adapted", before)
	}
	patched := strings.Replace(string(text), before, before+"\tsec += *clockShift\n", 1)
	replace := map[string]string{
		filepath.Join(source, "time.go"):        filepath.Join(dir, "time.go"),
		filepath.Join(source, "clock_shift.go"): filepath.Join(dir, "clock_shift.go"),
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"time.go": patched, "clock_shift.go": shiftSource, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", s.binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with a shifted clock: %v\n%s", err, out)
	}
	s.set(0)
	return s
}

// set sets the offset of the wall clock of the processes of the program.
func (s *shiftedProgram) set(by time.Duration) {
	s.t.Helper()
	f, err := os.OpenFile(s.file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(int64(by/time.Second)))
	if _, err := f.WriteAt(b[:], 0); err != nil {
		s.t.Fatal(err)
	}
}

// Start implements launcher.
func (s *shiftedProgram) Start(cmd *exec.Cmd) error {
	cmd.Path, cmd.Args[0] = s.binary, s.binary
	cmd.Env = append(cmd.Env, clockVariable+"="+s.file)
	return cmd.Start()
}

// attackClockJumps sets the wall clock of a rank while it makes steps.
func attackClockJumps(t *testing.T, rng *rand.Rand) {
	program := newShiftedProgram(t)
	const ranks = 3
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "quic"))
	w.startSeed(nil, arguments{World: ranks, Listen: "127.0.0.1:0", Elastic: true})
	for range ranks - 1 {
		w.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	victim := w.startRank(program, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	w.waitForSteps(5)
	for _, hours := range []int{3, -6, 11, -11, 1 + rng.IntN(20), -1 - rng.IntN(20)} {
		program.set(time.Duration(hours)*time.Hour + time.Duration(rng.IntN(3600))*time.Second)
		began := time.Now()
		victim.await(bound, "event at the shifted time", func(e event) bool {
			w.check(victim, e)
			return e.Kind == evStep && e.At.Sub(began).Abs() > time.Duration(max(hours, -hours)-1)*time.Hour
		})
		w.waitForSteps(5)
	}
	// Failed nodes are still removed while the clock is wrong.
	w.ranks[0].signal(os.Kill)
	w.waitForSize(ranks - 1)
	w.waitForSteps(5)
	program.set(0)
	w.waitForSteps(5)
	w.finish()
}

// attackClockOff has nodes with a wrong wall clock join.
func attackClockOff(t *testing.T, rng *rand.Rand) {
	program := newShiftedProgram(t)
	w := newWorld(t, rng, transports(rng, "shm", "tcp,quic", "quic"))
	w.startLocal(2, arguments{Elastic: true})
	for _, hours := range []int{25, -25} {
		program.set(time.Duration(hours) * time.Hour)
		late := w.startRank(program, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		late.markVictim()
		e := late.await(bound, "error about the clock", func(e event) bool { return e.Kind == evError || e.Kind == evJoined })
		for _, text := range []string{"by this clock it is", "NTP"} {
			if !strings.Contains(e.Text, text) {
				t.Errorf("%d hours off: the error does not contain %q: %s %s", hours, text, e.Kind, e.Text)
			}
		}
		late.reap()
		w.waitForSteps(5)
	}
	program.set(3 * time.Hour)
	w.startRank(program, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	w.waitForSize(3)
	w.waitForSteps(5)
	w.finish()

}
