package checkpoint_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/checkpoint"
	"github.com/nexar-go/nexar/nexartest"
)

// folderVariable makes the test binary a program that writes checkpoints to this folder until it is killed.
const folderVariable = "NEXAR_TEST_CHECKPOINTS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(folderVariable); dir != "" {
		fmt.Println(writeForEver(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const killedWholes = 20000

// writeForEver writes checkpoints, by two ranks, beginning after the newest one. It prints each step that is complete.
func writeForEver(dir string) error {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 2, nexar.Config{})
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for _, c := range comms {
		group.Go(func() {
			s, err := checkpoint.New(ctx, c, dir, checkpoint.Config{})
			if err != nil {
				fmt.Println(err)
				return
			}
			st := newState(c, killedWholes)
			step, err := s.Load(ctx, st.items()...)
			for err == nil {
				step++
				if err = s.Save(ctx, step, st.fill(int(step)).items()...); err == nil && c.Rank() == 0 {
					fmt.Println(step)
				}
			}
			fmt.Println(err)
		})
	}
	group.Wait()
	return fmt.Errorf("no more checkpoints")
}

// TestKilled: after kill -9 at any time the newest checkpoint is the last one that Save had written, or the one after it, and it is whole.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	last := int64(-1)
	for range 12 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), folderVariable+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 1 + rand.IntN(3); n > 0 && lines.Scan(); n-- {
			last, err = strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
			must(t, err)
		}
		time.Sleep(rand.N(2 * time.Millisecond)) // into the next one
		must(t, cmd.Process.Kill())
		for lines.Scan() {
			last, err = strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
			must(t, err)
		}
		_ = cmd.Wait()
		nexartest.Run(t, 3, func(t *testing.T, c *nexar.Comm) {
			got := newState(c, killedWholes)
			step, err := open(t, c, dir).Load(t.Context(), got.items()...)
			if must(t, err); step != last && step != last+1 {
				t.Errorf("step %d, want %d or the next", step, last)
			}
			got.want(t, c, int(step))
		})
	}
}
