//race:none its tests start child processes and browsers, which the detector does not see

package page

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testbuild"
)

// programs are the command nexar.
var programs = testbuild.Set{Build: func(dir string) error {
	return testbuild.Go("build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "../../cmd/nexar")
}}

// orders is the variable with the file of orders for the ranks. It makes the test binary a rank. pauses is that with the pause between its calls, nodes that with the number
// of ranks of the process.
const (
	orders = "PAGE_TEST_ORDERS"
	pauses = "PAGE_TEST_PAUSE"
	nodes  = "PAGE_TEST_NODES"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(orders); file != "" {
		n, err := strconv.Atoi(os.Getenv(nodes))
		var ranks sync.WaitGroup
		for range n {
			ranks.Go(func() {
				if err := rank(context.Background(), file); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			})
		}
		if ranks.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(programs.Around(m).Run())
}

// rank works until the file of orders says "end".
func rank(ctx context.Context, file string) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	for comm, err := range node.Epochs(ctx) {
		if err != nil {
			return err
		}
		switch err := work(ctx, comm, file); {
		case err == nil:
			return nil
		case errors.Is(err, nexar.ErrPeerFailed), errors.Is(err, nexar.ErrRevoked):
		default:
			return err
		}
	}
	return nil
}

// work makes all-reduces on a communicator. All ranks learn the order of rank 0.
func work(ctx context.Context, comm *nexar.Comm, file string) error {
	vector := make([]float32, 1<<12)
	pause, err := time.ParseDuration(os.Getenv(pauses))
	if err != nil {
		return err
	}
	for {
		order := []int32{0}
		if text, err := os.ReadFile(file); err == nil && comm.Rank() == 0 {
			order[0] = map[string]int32{"deadlock": 1, "end": 2}[string(text)]
		}
		if err := nexar.Broadcast(ctx, comm, order, 0); err != nil {
			return err
		}
		switch last := comm.Size() - 1; {
		case order[0] == 2:
			return nil
		case order[0] == 1 && comm.Rank() == last:
			if _, err := nexar.Recv(ctx, comm, make([]float32, 1), 0, 5); err != nil {
				return err
			}
		case order[0] == 1:
			if err := comm.Barrier(ctx); err != nil {
				return err
			}
		}
		if err := nexar.AllReduce(ctx, comm, vector, nexar.Sum); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}
