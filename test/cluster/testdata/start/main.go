//go:build linux

// Command start is a rank of a world that nexar run starts: it joins, makes an all-reduce, prints a line of JSON about it, and
// leaves. Rank 0 leaves at the end of its standard input, and the others with it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/nexar-go/nexar"
)

// A report is the line of JSON.
type report struct {
	Rank, Size  int
	Joined      time.Time
	FirstReduce time.Duration
	Processor   time.Duration // user and system, until the result of the all-reduce
	Resident    int           // bytes, after the all-reduce
	Parent      int           // process that has started this one
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	r := report{Joined: time.Now()}
	c := node.World()
	r.Rank, r.Size = c.Rank(), c.Size()
	x := []int32{int32(r.Rank + 1)}
	if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
		return err
	}
	r.FirstReduce = time.Since(r.Joined)
	if want := int32(r.Size * (r.Size + 1) / 2); x[0] != want {
		return fmt.Errorf("the sum of %d ranks is %d, want %d", r.Size, x[0], want)
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return err
	}
	r.Processor = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	if r.Resident, err = resident(); err != nil {
		return err
	}
	r.Parent = os.Getppid()
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	if r.Rank == 0 {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			return err
		}
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	return node.Close()
}

// resident returns the resident memory of this process.
func resident() (bytes int, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &bytes); err == nil {
			return bytes << 10, nil
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmRSS")
}
