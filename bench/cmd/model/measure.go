package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

// A measurement is a line of "nexar bench --json", and the round in which it was made.
type measurement struct {
	Round     int     `json:"round"`
	Op        string  `json:"op"`
	Ranks     int     `json:"ranks"`
	Bytes     int64   `json:"bytes"`
	Encrypted bool    `json:"encrypted"`
	Iters     int     `json:"iters"`
	P50       float64 `json:"p50_us"`
	Algorithm string  `json:"algorithm"`
	Channels  int     `json:"channels"`
	Wrong     int64   `json:"wrong"`
}

// A cell is the median of the measurements of a call in all rounds.
type cell struct {
	Op        string
	Ranks     int
	Bytes     int64
	Encrypted bool
	Algorithm string
	Channels  int
	Micros    []float64 // by round, in ascending order
}

// median returns the median of the rounds in seconds.
func (c cell) median() float64 {
	n := len(c.Micros)
	return (c.Micros[(n-1)/2] + c.Micros[n/2]) / 2 / 1e6
}

// benchTimeout is the longest time of a run of "nexar bench".
const benchTimeout = 2 * time.Minute

// benchArgs returns the arguments of "nexar bench" for a number of ranks. The first run of each size is not counted: it
// makes links, which takes far longer.
func benchArgs(ranks int) []string {
	iters, most, factor := 15, "1MiB", 4
	switch {
	case ranks <= 2:
		iters, most = 101, "16MiB"
	case ranks <= 4:
		iters, most = 31, "16MiB"
	case ranks <= 8:
		most = "16MiB"
	case ranks > 64:
		iters, factor = 7, 16
	case ranks > 32:
		iters = 7
	case ranks > 16:
		iters = 11
	}
	return []string{
		"bench", "-n", strconv.Itoa(ranks), "--transport", "tcp", "--op", "all_reduce,barrier", "--min", "16", "--max", most,
		"--factor", strconv.Itoa(factor), "--iters", strconv.Itoa(iters), "--json", "-",
	}
}

// measure adds a round to a file: in the clear and with TLS, for each number of ranks.
func measure(ctx context.Context, program string, ranks []int, file string, progress io.Writer) error {
	round := 1
	old, err := readMeasurements(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, m := range old {
		round = max(round, m.Round+1)
	}
	for _, n := range ranks {
		for _, plain := range []string{"1", "0"} {
			fmt.Fprintf(progress, "round %d: %d ranks, NEXAR_PLAIN_BULK=%s\n", round, n, plain)
			lines, err := bench(ctx, program, n, plain)
			if err != nil {
				return fmt.Errorf("%d ranks, NEXAR_PLAIN_BULK=%s: %w", n, plain, err)
			}
			var text []byte
			for _, m := range lines {
				m.Round = round
				line, err := json.Marshal(m)
				if err != nil {
					return err
				}
				text = append(append(text, line...), '\n')
			}
			if err := appendTo(file, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendTo appends a part to a compressed file. Readers of gzip read the parts as one file.
func appendTo(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	_, err = z.Write(text)
	return errors.Join(err, z.Close(), f.Close())
}

// bench runs "nexar bench" once.
func bench(ctx context.Context, program string, ranks int, plain string) ([]measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, benchTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, benchArgs(ranks)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "NEXAR_PLAIN_BULK="+plain)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return decode(bytes.NewReader(text))
}

func decode(text io.Reader) (list []measurement, err error) {
	for lines := json.NewDecoder(text); ; {
		var m measurement
		switch err := lines.Decode(&m); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		case m.Wrong > 0:
			return nil, fmt.Errorf("%s of %d bytes: %d wrong elements", m.Op, m.Bytes, m.Wrong)
		case m.Algorithm == "":
			return nil, fmt.Errorf("%s of %d bytes: the line names no algorithm", m.Op, m.Bytes)
		}
		list = append(list, m)
	}
}

func readMeasurements(file string) ([]measurement, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	list, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

// read returns the cells of a file of measurements. Calls by different algorithms are different cells: ranks measure their
// links when they join, and the choice depends on these.
func read(file string) (cells []cell, err error) {
	list, err := readMeasurements(file)
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		i := slices.IndexFunc(cells, func(c cell) bool {
			return c.Op == m.Op && c.Ranks == m.Ranks && c.Bytes == m.Bytes && c.Encrypted == m.Encrypted && c.Algorithm == m.Algorithm && c.Channels == m.Channels
		})
		if i < 0 {
			i = len(cells)
			cells = append(cells, cell{Op: m.Op, Ranks: m.Ranks, Bytes: m.Bytes, Encrypted: m.Encrypted, Algorithm: m.Algorithm, Channels: m.Channels})
		}
		cells[i].Micros = append(cells[i].Micros, m.P50)
	}
	for _, c := range cells {
		slices.Sort(c.Micros)
	}
	return cells, nil
}

func selected(cells []cell, keep func(cell) bool) (list []cell) {
	for _, c := range cells {
		if keep(c) {
			list = append(list, c)
		}
	}
	return list
}

// fittedTo reports whether a cell has one of the numbers of ranks.
func fittedTo(ranks []int) func(cell) bool {
	return func(c cell) bool { return slices.Contains(ranks, c.Ranks) }
}
