// Command plot draws the results of nexar bench and nexar simulate. It reads the lines of --json from files, or from standard
// input without files, and writes SVG to standard output:
//
//	nexar bench -n 4 --json - | go run ./cmd/plot > times.svg
//	nexar bench -n 8 --op all_reduce --algorithms --json algorithms.jsonl
//	nexar simulate -n 1024 --topology fat-tree:32:4 --json fat-tree.jsonl
//	go run ./cmd/plot fat-tree.jsonl > fat-tree.svg
//
// The drawing has the median time over the size, a curve for each operation or algorithm, and the predictions of
// nexar bench --algorithms dashed. Of nexar simulate it also has the bytes over the busiest link, the best of each size is
// circled, and only the six algorithms that come closest to the best are drawn. Operations without a size are left out.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "plot: %v\n", err)
		os.Exit(1)
	}
}

func run(files []string, stdin io.Reader, stdout io.Writer) error {
	var all []result
	if len(files) == 0 {
		list, err := read(stdin, "standard input")
		if err != nil {
			return err
		}
		all = list
	}
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		list, err := read(file, name)
		file.Close()
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	charts, err := chartsOf(all)
	if err != nil {
		return err
	}
	return write(stdout, charts)
}

// A result is a line of nexar bench or nexar simulate.
type result struct {
	Op        string
	Ranks     int
	Bytes     int64
	Transport string
	Encrypted bool
	Device    string
	Topology  string
	Algorithm string
	Shared    bool
	Best      bool

	Median    float64 `json:"p50_us"`
	Predicted float64 `json:"predicted_us"` // of nexar bench --algorithms alone
	Simulated float64 `json:"time_us"`      // of nexar simulate alone
	Busiest   float64 `json:"busiest_bytes"`
}

func read(r io.Reader, name string) (list []result, err error) {
	for d := json.NewDecoder(r); ; {
		var next result
		switch err := d.Decode(&next); {
		case err == io.EOF && len(list) == 0:
			return nil, fmt.Errorf("%s is empty: want lines of nexar bench --json or nexar simulate --json", name)
		case err == io.EOF:
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s, line %d: %w: want the output of nexar bench --json or nexar simulate --json", name, len(list)+1, err)
		case next.Op == "":
			return nil, fmt.Errorf("%s, line %d has no op: want the output of nexar bench --json or nexar simulate --json", name, len(list)+1)
		}
		list = append(list, next)
	}
}

var errNothing = errors.New("nothing to draw: no operation with a size was measured")
