package launchers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/launch"
)

// Variables of the role "world".
const (
	// untilVariable names a file: the world works until it exists. Without it the world makes few steps.
	untilVariable = "LAUNCHERS_UNTIL"
	// markVariable has a text that must be the same on all ranks when the variables in it are replaced.
	markVariable = "LAUNCHERS_MARK"
	// dieVariable names a file that rank 1 makes after some steps, before it kills itself. It does nothing if the file exists.
	dieVariable = "LAUNCHERS_DIE"
)

// A member is what a rank prints at the beginning of each epoch and, with Done, after the last step.
type member struct {
	Epoch, Rank, Size, Step int
	First                   int           // its rank in the first epoch
	Host, Mark              string        // of this process
	Local                   int           // Comm.LocalRank
	Joined                  time.Duration // how long Join took
	Done                    bool
	Told                    string // the rank according to Open MPI
}

// fewSteps is the number of steps of a world without untilVariable.
const fewSteps = 10

// world is an ordinary program: it knows nothing of launchers.
func world(env launch.Environment) error {
	ctx := context.Background()
	began := time.Now()
	node, err := nexar.Join(ctx, nexar.Config{Consensus: raft.Open})
	if err != nil {
		return err
	}
	defer node.Close()
	m := member{First: node.World().Rank(), Host: env.Hostname, Joined: time.Since(began), Mark: os.ExpandEnv(os.Getenv(markVariable)), Told: env.Vars["OMPI_COMM_WORLD_RANK"]}
	for comm, err := range node.Epochs(ctx) {
		if err != nil {
			return err
		}
		m.Epoch, m.Rank, m.Size, m.Local = m.Epoch+1, comm.Rank(), comm.Size(), comm.LocalRank()
		err := m.work(ctx, comm)
		if err == nil {
			m.Done = true
			return m.print()
		}
		if comm.Err() == nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "rank %d: epoch %d ends: %v\n", m.Rank, m.Epoch, comm.Err())
	}
	return errors.New("no further epoch")
}

func (m *member) print() error {
	line, err := json.Marshal(m)
	if err == nil { // In one call, so that no launcher mixes lines.
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	return err
}

// work makes steps in one epoch.
func (m *member) work(ctx context.Context, c *nexar.Comm) error {
	if err := nexar.Sync(ctx, c, &m.Step); err != nil {
		return err
	}
	marks := make([]byte, 64*c.Size())
	if err := nexar.AllGather(ctx, c, marks, append([]byte(m.Mark), make([]byte, 64-len(m.Mark))...)); err != nil {
		return err
	}
	for rank := range c.Size() {
		if got := string(bytes.TrimRight(marks[rank*64:rank*64+64], "\x00")); got != m.Mark {
			return fmt.Errorf("rank %d belongs to the job %q, rank %d to %q", c.Rank(), m.Mark, rank, got)
		}
	}
	if err := m.print(); err != nil {
		return err
	}
	until := os.Getenv(untilVariable)
	for {
		if err := m.step(ctx, c); err != nil {
			return err
		}
		m.Step++
		if die := os.Getenv(dieVariable); die != "" && m.First == 1 && m.Step == fewSteps/2 {
			if f, err := os.OpenFile(die, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				return errors.Join(f.Close(), syscall.Kill(os.Getpid(), syscall.SIGKILL))
			}
		}
		end := m.Step >= fewSteps
		if until != "" {
			_, err := os.Stat(until)
			end = err == nil
			time.Sleep(20 * time.Millisecond)
		}
		all, err := nexar.AllReduceOne(ctx, c, map[bool]int{true: 1}[end], nexar.Min)
		if err != nil || all == 1 {
			return err
		}
	}
}

// step makes collectives and a ring of messages, and verifies the results.
func (m *member) step(ctx context.Context, c *nexar.Comm) error {
	const length = 1000
	rank, size := c.Rank(), c.Size()
	value := func(rank, i int) int64 { return int64(m.Step+1)*1_000_003 + int64(rank)*length + int64(i) }
	fill := func(rank, n int) []int64 {
		x := make([]int64, n)
		for i := range x {
			x[i] = value(rank, i)
		}
		return x
	}
	same := func(what string, got []int64, want func(i int) int64) error {
		for i, x := range got {
			if x != want(i) {
				return fmt.Errorf("%s on rank %d of %d, step %d: element %d is %d, want %d", what, rank, size, m.Step, i, x, want(i))
			}
		}
		return nil
	}
	sum := fill(rank, length)
	all := make([]int64, size*length)
	to, from := fill(rank, size), make([]int64, size)
	root := m.Step % size
	cast := fill(rank, length)
	ring := make([]int64, length)
	left, right := (rank+size-1)%size, (rank+1)%size
	for _, call := range []func() error{
		func() error { return nexar.AllReduce(ctx, c, sum, nexar.Sum) },
		func() error { return nexar.AllGather(ctx, c, all, fill(rank, length)) },
		func() error { return nexar.AllToAll(ctx, c, from, to) },
		func() error { return nexar.Broadcast(ctx, c, cast, root) },
		func() error {
			_, err := nexar.Exchange(ctx, c, ring, fill(rank, length), right, left, 1)
			return err
		},
		func() error { return c.Barrier(ctx) },
	} {
		if err := call(); err != nil {
			return err
		}
	}
	return errors.Join(
		same("AllReduce", sum, func(i int) int64 { return int64(size)*value(0, i) + int64(size*(size-1)/2)*length }),
		same("AllGather", all, func(i int) int64 { return value(i/length, i%length) }),
		same("AllToAll", from, func(i int) int64 { return value(i, rank) }),
		same("Broadcast", cast, func(i int) int64 { return value(root, i) }),
		same("Exchange", ring, func(i int) int64 { return value(left, i) }),
	)
}

// full leaves a test out that takes long, unless all are asked for.
func full(t *testing.T) {
	t.Helper()
	require.Have(t, "all launchers", require.AllTrials(), "TRIALS=all runs it")
}

// limited returns a context that ends with the test, and before it if a world hangs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slurmLimit)
	t.Cleanup(cancel)
	return ctx
}

// self returns the path of the test binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// asWorld lets the processes of a command take the role "world".
func asWorld(cmd *exec.Cmd, vars ...string) *exec.Cmd {
	cmd.Env = slices.Concat(cmd.Env, []string{roleVariable + "=world", "NEXAR_FORM_TIMEOUT_SECS=90"}, vars)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// token returns the variable of a new token.
func token() string { return "NEXAR_CLUSTER_TOKEN=" + nexar.NewToken() }

// members returns the lines of ranks in the output of a command. Other lines may be between them.
func members(out string) (all []member) {
	for line := range strings.Lines(out) {
		if start := strings.IndexByte(line, '{'); start >= 0 {
			var m member
			if json.Unmarshal([]byte(line[start:]), &m) == nil && m.Size > 0 {
				all = append(all, m)
			}
		}
	}
	return all
}

// checkWorld requires that the output has each rank of a world of this size once at its end, and each with the mark. It returns them by rank.
func checkWorld(t *testing.T, out, mark string, size int) []member {
	t.Helper()
	done := slices.DeleteFunc(members(out), func(m member) bool { return !m.Done || m.Mark != mark })
	slices.SortFunc(done, func(a, b member) int { return a.Rank - b.Rank })
	var ranks []int
	for _, m := range done {
		if m.Size != size || m.Step == 0 {
			t.Errorf("a rank ends in a world of another size, or without a step: %+v", m)
		}
		ranks = append(ranks, m.Rank)
	}
	if want := upTo(size); !slices.Equal(ranks, want) {
		t.Fatalf("the ranks %v have ended in the world %q: expected %v:\n%s", ranks, mark, want, out)
	}
	return done
}

// upTo returns the numbers below n.
func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// runWorld runs a command whose processes are one world, which must end well.
func runWorld(t *testing.T, cmd *exec.Cmd, size int, vars ...string) []member {
	t.Helper()
	all := checkWorld(t, output(t, asWorld(cmd, vars...)), "", size)
	record(t, all)
	return all
}

// failWorld runs a command whose processes fail, with these texts in their errors.
func failWorld(t *testing.T, cmd *exec.Cmd, texts []string, vars ...string) string {
	t.Helper()
	out, err := asWorld(cmd, vars...).CombinedOutput()
	if err == nil {
		t.Errorf("%v ended well: expected an error", cmd.Args)
	}
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			t.Errorf("the output lacks %q", text)
		}
	}
	if t.Failed() {
		t.Logf("%v (%v):\n%s", cmd.Args, err, out)
	}
	recordText(t, "fails as expected")
	return string(out)
}

// A running is a command whose worlds work until stop is called.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   testlog.Buffer
	files string // a pattern of files with further output
	until string
	ended chan struct{}
	err   error // when ended is closed
}

// text returns the output so far.
func (r *running) text() string {
	r.t.Helper()
	text := r.out.String()
	files, err := filepath.Glob(r.files)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, file := range files {
		part, err := os.ReadFile(file)
		if err != nil {
			r.t.Fatal(err)
		}
		text += string(part)
	}
	return text
}

// startWorld starts a command whose world works until stop.
func startWorld(t *testing.T, cmd *exec.Cmd, vars ...string) *running {
	t.Helper()
	r := &running{t: t, until: t.TempDir() + "/stop", ended: make(chan struct{})}
	r.cmd = asWorld(cmd, append(vars, untilVariable+"="+r.until)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
	})
	return r
}

// await waits until as many ranks work in an epoch with this number in worlds with the mark, or any mark if it is "", and returns them.
func (r *running) await(mark string, epoch, size int) []member {
	r.t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		all := slices.DeleteFunc(members(r.text()), func(m member) bool {
			return mark != "" && m.Mark != mark || m.Epoch != epoch || m.Size != size || m.Done
		})
		if len(all) == size {
			return all
		}
		select {
		case <-r.ended:
			r.t.Fatalf("the command has ended with %d of %d ranks in epoch %d: %v\n%s", len(all), size, epoch, r.err, r.text())
		default:
		}
		if time.Since(began) > slurmLimit {
			r.t.Fatalf("%d of %d ranks in epoch %d after %v:\n%s", len(all), size, epoch, slurmLimit, r.text())
		}
	}
}

// stop ends the steps, and waits until the processes have ended. It requires these sizes of worlds by their marks.
func (r *running) stop(worlds map[string]int) {
	r.t.Helper()
	if err := os.WriteFile(r.until, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.ended:
	case <-time.After(slurmLimit):
		r.t.Fatalf("the command has not ended after %v:\n%s", slurmLimit, r.text())
	}
	for mark, size := range worlds {
		record(r.t, checkWorld(r.t, r.text(), mark, size))
	}
}
