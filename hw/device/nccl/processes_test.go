package nccl_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

const (
	workerRank = "NCCLTEST_RANK"
	workerSeed = "NCCLTEST_SEED"
	workerKill = "NCCLTEST_KILLED" // a rank that is killed
	workerHost = "NCCLTEST_RANKS"  // ranks of a host
	workerWant = "NCCLTEST_INSIDE" // the method of hosts
	workerMode = "NCCLTEST_MODE"   // "" for one sum, "all" for all collectives, "inside" for the end of a rank inside a call
)

// silence is the heartbeat timeout of workers: so long that they detect the end of a process otherwise.
const silence = 30 * time.Second

// A worker is a process with a rank.
type worker struct {
	cmd *exec.Cmd
	out *bufio.Scanner
	in  io.Writer
}

// line returns the rest of the next line of output that begins with a word.
func (w *worker) line(t *testing.T, word string) string {
	t.Helper()
	var all []string
	for w.out.Scan() {
		if rest, ok := strings.CutPrefix(w.out.Text(), word+" "); ok {
			return rest
		}
		all = append(all, w.out.Text())
	}
	t.Fatalf("worker has ended (%v) and has not printed %q:\n%s", w.cmd.Wait(), word, strings.Join(all, "\n"))
	return ""
}

// fakes returns the environment of workers with the fakes of the driver and of NCCL.
func fakes(t *testing.T) []string {
	t.Helper()
	return []string{cudafake.PathVariable + "=" + cudafake.New(t).Path, cudafake.NCCLVariable + "=" + cudafake.NCCL(t)}
}

// start starts n processes with ranks of one world. Two are of a host, and use NCCL, unless env has something else.
// RANK:NAME=VALUE is for one rank. Without fakes in their environment they use the libraries of the machine.
func start(t *testing.T, n int, env ...string) []*worker {
	t.Helper()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: n, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seed.Close() })
	workers := make([]*worker, n)
	for i := range workers {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), workerRank+"="+strconv.Itoa(i), workerSeed+"="+seed.Addr(), workerHost+"=2", workerWant+"=nccl"), env...)
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, fmt.Sprint(i, ":")); ok {
				cmd.Env = append(cmd.Env, v)
			}
		}
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		workers[i] = &worker{cmd, bufio.NewScanner(pipe), in}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	return workers
}

// TestMain runs the tests, or a rank in a process that a test has started.
func TestMain(m *testing.M) {
	if number := os.Getenv(workerRank); number != "" {
		if err := runWorker(number); err != nil {
			fmt.Fprintf(os.Stderr, "rank %s: %v\n", number, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// runWorker is a rank. It prints the hash of a sum and, if a rank is to be killed, the error of the next call.
func runWorker(name string) error {
	i, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	ctx := context.Background()
	node, err := nexar.Join(ctx, nexar.Config{Seeds: []string{os.Getenv(workerSeed)}, Rank: &i, HeartbeatTimeout: silence})
	if err != nil {
		return err
	}
	defer node.Close()
	ranks, err := strconv.Atoi(os.Getenv(workerHost))
	if err != nil {
		return err
	}
	driver := os.Getenv(cudafake.PathVariable)
	number := i % ranks
	if driver == "" {
		if number, err = shareGPU(i); err != nil {
			return err
		}
	} else if _, err := cudafake.Load(); err != nil { // which runs the kernels of gpu
		return err
	}
	gpu, err := cuda.Open(number, cuda.Config{Library: driver})
	if err != nil {
		return err
	}
	defer gpu.Close()
	stream, err := gpu.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	cfg := nccl.Config{Library: os.Getenv(cudafake.NCCLVariable), Host: fmt.Sprint("host ", i/ranks), ExchangeBuffer: 1 << 16}.WithSameGPU()
	g, err := nccl.New(ctx, node.World(), stream, cfg)
	if err != nil {
		return err
	}
	defer g.Close()
	if want := os.Getenv(workerWant); g.Inside() != want {
		return fmt.Errorf("the host uses %q (%s), want %q", g.Inside(), g.Reason(), want)
	}
	if os.Getenv(workerMode) == "all" {
		return everything(ctx, &rank{comm: node.World(), gpu: gpu, stream: stream, group: g})
	}
	fmt.Printf("reason %s\n", g.Reason())
	const n = 100_003
	b, err := gpu.Alloc(ctx, 4*n)
	if err != nil {
		return err
	}
	if err := gpu.CopyIn(ctx, device.Whole(b), vector(device.Float32, i, n)); err != nil {
		return err
	}
	if err := g.AllReduce(ctx, device.Float32, device.Whole(b), nexar.Sum); err != nil {
		return err
	}
	out := make([]byte, 4*n)
	if err := gpu.CopyOut(ctx, out, device.Whole(b)); err != nil {
		return err
	}
	fmt.Printf("sum %x\n", sha256.Sum256(out))
	killed := os.Getenv(workerKill)
	if killed == "" {
		return nil
	}
	if os.Getenv(workerMode) == "inside" {
		if err := beside(g, i, ranks, killed); err != nil {
			return err
		}
	} else if killed == name {
		time.Sleep(time.Hour) // until it is killed, while the others are in the call
	}
	err = g.AllReduce(ctx, device.Float32, device.Whole(b), nexar.Sum)
	fmt.Printf("error %v\n", err)
	if peer, ok := errors.AsType[*nexar.PeerError](err); !ok || strconv.Itoa(peer.Rank) != killed {
		return fmt.Errorf("%w, want an error that names rank %s", err, killed)
	}
	return again(ctx, node, gpu, stream, cfg, b)
}

// beside prepares a call for the death of a rank. The first rank of its host waits for a line of input before it calls, so
// that the others remain in calls of NCCL. They print a line when they are there.
func beside(g *nccl.Group, rank, ranks int, killed string) error {
	k, err := strconv.Atoi(killed)
	if err != nil {
		return err
	}
	if rank == k/ranks*ranks {
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	}
	g.OnQueued(sync.OnceFunc(func() { fmt.Println("inside NCCL") }))
	return nil
}

// again creates a Group on the next epoch, and prints its method and a sum.
func again(ctx context.Context, node *nexar.Node, gpu *cuda.Device, stream device.Stream, cfg nccl.Config, b device.Buffer) error {
	for c, err := range node.Epochs(ctx) {
		if err != nil {
			return err
		}
		if c.Err() != nil {
			continue
		}
		g, err := nccl.New(ctx, c, stream, cfg)
		if err != nil {
			return err
		}
		defer g.Close()
		data := []byte{1, 2, 3, 4}
		four := device.Region{Buffer: b, Bytes: 4}
		if err := gpu.CopyIn(ctx, four, data); err != nil {
			return err
		}
		if err := g.AllReduce(ctx, device.Uint8, four, nexar.Sum); err != nil {
			return err
		}
		if err := gpu.CopyOut(ctx, data, four); err != nil {
			return err
		}
		fmt.Printf("again %s %v\n", g.Inside(), data)
		return nil
	}
	return nil
}

// end waits until workers end without an error.
func end(t *testing.T, workers []*worker) {
	t.Helper()
	for i, w := range workers {
		for w.out.Scan() {
		}
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// withoutNCCL is the environment of ranks that use peer access.
var withoutNCCL = []string{cudafake.NCCLVariable + "=" + noLibrary, workerWant + "=peer"}

// TestProcesses: ranks in processes of two hosts have the same bits, which are those of the sum, with NCCL, with
// peer access, and if only one host has NCCL.
func TestProcesses(t *testing.T) {
	onLibraries(t, func(t *testing.T, env []string) { checkSums(t, start(t, 4, env...)) })
	t.Run("peer", func(t *testing.T) {
		onDrivers(t, func(t *testing.T, env []string) { checkSums(t, start(t, 4, append(env, withoutNCCL...)...)) })
	})
	t.Run("mixed", func(t *testing.T) {
		env := fakes(t)
		for _, e := range withoutNCCL {
			env = append(env, "2:"+e, "3:"+e)
		}
		checkSums(t, start(t, 4, env...))
	})
}

// checkSums compares the sums of ranks with that of their vectors.
func checkSums(t *testing.T, workers []*worker) {
	t.Helper()
	var want []byte
	for i := range workers {
		v := vector(device.Float32, i, 100_003)
		if want == nil {
			want = v
			continue
		}
		add(want, v)
	}
	for i, w := range workers {
		if hash, got := fmt.Sprintf("%x", sha256.Sum256(want)), w.line(t, "sum"); hash != got {
			t.Errorf("rank %d has the sum %s, want %s", i, got, hash)
		}
	}
	end(t, workers)
}

// TestVersions: a host whose ranks have different versions of NCCL uses peer access, and says why.
func TestVersions(t *testing.T) {
	workers := start(t, 2, append(fakes(t), "1:FAKENCCL_VERSION=22702", workerWant+"=peer")...)
	for _, w := range workers {
		if got, want := w.line(t, "reason"), "rank 1 has NCCL 2.27.2, and rank 0 has 2.23.4"; got != want {
			t.Errorf("reason %q, want %q", got, want)
		}
	}
	end(t, workers)
}

// TestKilledRank: when a rank is killed while the others are in a call, they get an error that
// names it, and continue with a Group on the next epoch.
func TestKilledRank(t *testing.T) {
	// The host of the killed rank has one rank left, and the other one has two.
	onLibraries(t, func(t *testing.T, env []string) {
		checkKill(t, start(t, 4, append(env, workerKill+"=3")...), " [3 6 9 12]")
	})
	oneHost := []string{workerHost + "=4", "FAKECUDA_DEVICES=4", workerKill + "=3"}
	t.Run("one host", func(t *testing.T) {
		onLibraries(t, func(t *testing.T, env []string) {
			checkKill(t, start(t, 4, append(env, oneHost...)...), "nccl [3 6 9 12]")
		})
	})
	t.Run("peer", func(t *testing.T) {
		onDrivers(t, func(t *testing.T, env []string) {
			checkKill(t, start(t, 4, slices.Concat(env, oneHost, withoutNCCL)...), "peer [3 6 9 12]")
		})
	})
}

// TestKilledInCall: when a rank is killed inside a call of NCCL, the others get an error that names it within 5 s and the heartbeat
// timeout, also while another rank has not called yet, and work on without it.
func TestKilledInCall(t *testing.T) {
	mode := []string{workerKill + "=3", workerMode + "=inside"}
	t.Run("two hosts", func(t *testing.T) {
		onLibraries(t, func(t *testing.T, env []string) {
			checkKillInCall(t, start(t, 4, slices.Concat(env, mode)...), 2, " [3 6 9 12]")
		})
	})
	t.Run("one host", func(t *testing.T) {
		onLibraries(t, func(t *testing.T, env []string) {
			oneHost := []string{workerHost + "=4", "FAKECUDA_DEVICES=4"}
			checkKillInCall(t, start(t, 4, slices.Concat(env, mode, oneHost)...), 0, "nccl [3 6 9 12]")
		})
	})
}

// checkKillInCall kills the last rank when all but one are in a call of NCCL, and looks for their errors and the next sum.
func checkKillInCall(t *testing.T, workers []*worker, late int, again string) {
	t.Helper()
	last := len(workers) - 1
	for i, w := range workers {
		if i != late {
			w.line(t, "inside")
		}
	}
	if err := workers[last].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	workers = workers[:last]
	// Ranks without an error by then are killed, so that the test does not wait for them.
	limit := time.AfterFunc(silence+5*time.Second, func() {
		t.Errorf("not all errors have come within 5s more than the heartbeat timeout %v", silence)
		for _, w := range workers {
			_ = w.cmd.Process.Kill()
		}
	})
	defer limit.Stop()
	for i, w := range workers {
		if i != late {
			t.Logf("rank %d: %s", i, w.line(t, "error"))
		}
	}
	if !limit.Stop() {
		return
	}
	if _, err := workers[late].in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	t.Logf("rank %d: %s", late, workers[late].line(t, "error"))
	for i, w := range workers {
		if got := w.line(t, "again"); got != again {
			t.Errorf("rank %d: %q, want %q", i, got, again)
		}
	}
	end(t, workers)
}

// checkKill kills the last rank, which does not call while the others do, and looks for their errors and the next sum.
func checkKill(t *testing.T, workers []*worker, again string) {
	t.Helper()
	for _, w := range workers {
		w.line(t, "sum")
	}
	last := len(workers) - 1
	if err := workers[last].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	workers = workers[:last]
	for i, w := range workers {
		t.Logf("rank %d: %s", i, w.line(t, "error"))
	}
	for i, w := range workers {
		if got := w.line(t, "again"); got != again {
			t.Errorf("rank %d: %q, want %q", i, got, again)
		}
	}
	end(t, workers)
}
