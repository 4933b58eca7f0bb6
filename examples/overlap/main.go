// Command overlap computes and all-reduces gradients, first sequentially and then with overlapping
// all-reduces, and prints both times:
//
//	go run ./cmd/nexar run -n 2 -- go run ./examples/overlap
//
// It measures computation on the processor, and computation elsewhere, such as on an accelerator, during
// which the processor waits. Overlap saves time if a processor, network or accelerator would otherwise
// be idle. If computation keeps all processors of a host busy, it saves nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"time"

	"github.com/nexar-go/nexar"
)

func main() {
	log.SetFlags(0)
	layers := flag.Int("layers", 8, "number of gradients of a step")
	size := flag.Int("size", 1<<20, "number of elements of a gradient, of 4 bytes each")
	flag.Parse()
	if *layers < 1 || *size < 1 {
		log.Fatalf("-layers %d -size %d: both must be at least 1", *layers, *size)
	}
	if err := run(context.Background(), *layers, *size); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, layers, size int) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	world := node.World()

	s := newStep(world, layers, size)
	busy, waiting, err := s.computations(ctx)
	if err != nil {
		return err
	}
	here, err := s.measure(ctx, busy)
	if err != nil {
		return err
	}
	elsewhere, err := s.measure(ctx, waiting)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("%d ranks over %s, %d processors here, %d gradients of %d bytes\n",
			world.Size(), world.Transport(), runtime.NumCPU(), layers, 4*size)
		write(os.Stdout, here, elsewhere)
	}
	return nil
}

// write writes the times of the steps as a table.
func write(w io.Writer, here, elsewhere map[part]time.Duration) {
	fmt.Fprintf(w, "%-20s %12s %12s\n", "computation on", "processor", "elsewhere")
	for _, p := range parts() {
		fmt.Fprintf(w, "%-20s %9.2f ms %9.2f ms\n", p, milliseconds(here[p]), milliseconds(elsewhere[p]))
	}
	saved := func(took map[part]time.Duration) float64 {
		return 100 * (1 - milliseconds(took[overlapping])/milliseconds(took[sequential]))
	}
	fmt.Fprintf(w, "%-20s %10.0f %% %10.0f %%\n", "saved", saved(here), saved(elsewhere))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
