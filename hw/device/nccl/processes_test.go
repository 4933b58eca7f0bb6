package nccl_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
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
	workerMode = "NCCLTEST_MODE"   // "" for one sum, "all" for all collectives
)

// A worker is a process with a rank.
type worker struct {
	cmd *exec.Cmd
	out *bufio.Scanner
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
	t.Fatalf("worker has not printed %q:\n%s", word, strings.Join(all, "\n"))
	return ""
}

// fakes returns the environment of workers with the fakes of the driver and of NCCL.
func fakes(t *testing.T) []string {
	t.Helper()
	return []string{cudafake.PathVariable + "=" + cudafake.New(t).Path, cudafake.NCCLVariable + "=" + cudafake.NCCL(t)}
}

// start starts n processes with ranks of one world. Two are of a host. Without fakes in their environment they
// use the libraries of the machine.
func start(t *testing.T, n int, env ...string) []*worker {
	t.Helper()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seed.Close() })
	workers := make([]*worker, n)
	for i := range workers {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(append(os.Environ(), workerRank+"="+strconv.Itoa(i), workerSeed+"="+seed.Addr()), env...)
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		workers[i] = &worker{cmd, bufio.NewScanner(pipe)}
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
	node, err := nexar.Join(ctx, nexar.Config{Seeds: []string{os.Getenv(workerSeed)}, Rank: &i})
	if err != nil {
		return err
	}
	defer node.Close()
	driver := os.Getenv(cudafake.PathVariable)
	number := i % 2
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
	g, err := nccl.New(ctx, node.World(), stream, nccl.Config{Library: os.Getenv(cudafake.NCCLVariable), Host: fmt.Sprint("host ", i/2)}.WithSameGPU())
	if err != nil {
		return err
	}
	defer g.Close()
	if g.Reason() != "" {
		return fmt.Errorf("NCCL is not used: %s", g.Reason())
	}
	if os.Getenv(workerMode) == "all" {
		return everything(ctx, &rank{comm: node.World(), gpu: gpu, stream: stream, group: g})
	}
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
	if killed == name {
		time.Sleep(time.Hour) // until it is killed, while the others are in the call
	}
	err = g.AllReduce(ctx, device.Float32, device.Whole(b), nexar.Sum)
	fmt.Printf("error %v\n", err)
	if peer, ok := errors.AsType[*nexar.PeerError](err); !ok || strconv.Itoa(peer.Rank) != killed {
		return fmt.Errorf("%w, want an error that names rank %s", err, killed)
	}
	return nil
}

// TestProcesses: ranks in processes of two hosts have the same bits, which are those of the sum.
func TestProcesses(t *testing.T) {
	onLibraries(t, func(t *testing.T, env []string) {
		workers := start(t, 4, env...)
		sum := workers[0].line(t, "sum")
		for i, w := range workers[1:] {
			if got := w.line(t, "sum"); got != sum {
				t.Errorf("rank %d has the sum %s, and rank 0 %s", i+1, got, sum)
			}
		}
		var want []byte
		for i := range 4 {
			v := vector(device.Float32, i, 100_003)
			if want == nil {
				want = v
				continue
			}
			add(want, v)
		}
		if hash := fmt.Sprintf("%x", sha256.Sum256(want)); hash != sum {
			t.Errorf("the sum is %s, want %s", sum, hash)
		}
		end(t, workers)
	})
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

// TestKilledRank: when a rank is killed while the others are in a call of NCCL, they get an error that
// names it.
func TestKilledRank(t *testing.T) {
	onLibraries(t, func(t *testing.T, env []string) {
		workers := start(t, 4, append(env, workerKill+"=3")...)
		for _, w := range workers {
			w.line(t, "sum")
		}
		if err := workers[3].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for i, w := range workers[:3] {
			t.Logf("rank %d: %s", i, w.line(t, "error"))
		}
		end(t, workers[:3])
	})
}
