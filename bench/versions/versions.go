// Package versions compares the speed of two versions of nexar. Their commands measure the same
// operations in turn, round after round, so that other load of the machine affects both alike.
package versions

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A Setting is a transport and a number of ranks.
type Setting struct {
	Transport string // as NEXAR_TRANSPORTS and "nexar bench --transport" name it
	Ranks     int
}

func (s Setting) String() string { return fmt.Sprintf("%s n=%d", s.Transport, s.Ranks) }

// ParseSetting reads a setting such as "shm:4".
func ParseSetting(text string) (Setting, error) {
	transport, ranks, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(ranks)
	if err != nil || n < 1 || transport == "" {
		return Setting{}, fmt.Errorf("setting %q: want TRANSPORT:RANKS, such as shm:4", text)
	}
	return Setting{Transport: transport, Ranks: n}, nil
}

// A Row is one line of the comparison: an operation on a vector in a setting.
type Row struct {
	Setting Setting
	Op      string
	Bytes   int64
}

// A Plan has the versions, settings, operations and sizes to compare.
type Plan struct {
	Old, New string // nexar commands
	Settings []Setting
	Ops      []string
	Sizes    []int64
	Rounds   int
	Budget   time.Duration // for one operation at one size in one round
}

// Samples are the median times of a row in microseconds, one for each round.
type Samples struct {
	Row      Row
	Old, New []float64
}

// Run carries out a plan and calls progress before each round. Both versions measure a setting and
// size directly after each other. In odd rounds, counted from 0, the new version runs first. Run
// returns an error if an operation fails or has a wrong result.
func Run(ctx context.Context, p Plan, progress func(round int)) ([]Samples, error) {
	var order []Row
	samples := make(map[Row]*Samples)
	for round := range p.Rounds {
		progress(round)
		for _, setting := range p.Settings {
			for i, size := range p.Sizes {
				ops := p.Ops
				if i > 0 { // A barrier has no size.
					ops = without(ops, "barrier")
				}
				if len(ops) == 0 {
					continue
				}
				for turn := range 2 {
					isNew := (round+turn)%2 == 1
					command := p.Old
					if isNew {
						command = p.New
					}
					times, err := measure(ctx, command, setting, ops, size, p.Budget)
					if err != nil {
						return nil, err
					}
					for _, op := range ops {
						row := Row{Setting: setting, Op: op, Bytes: size}
						if op == "barrier" {
							row.Bytes = 0
						}
						if samples[row] == nil {
							samples[row] = &Samples{Row: row}
							order = append(order, row)
						}
						if isNew {
							samples[row].New = append(samples[row].New, times[op])
						} else {
							samples[row].Old = append(samples[row].Old, times[op])
						}
					}
				}
			}
		}
	}
	list := make([]Samples, 0, len(order))
	for _, row := range order {
		list = append(list, *samples[row])
	}
	return list, nil
}

func without(ops []string, op string) (rest []string) {
	for _, o := range ops {
		if o != op {
			rest = append(rest, o)
		}
	}
	return rest
}

// measure runs "nexar bench" once and returns the median time of each operation in microseconds.
func measure(ctx context.Context, command string, s Setting, ops []string, size int64, budget time.Duration) (map[string]float64, error) {
	duration := budget * time.Duration(len(ops))
	cmd := exec.CommandContext(ctx, command, "bench", "-n", strconv.Itoa(s.Ranks), "--transport", s.Transport,
		"--op", strings.Join(ops, ","), "--min", strconv.FormatInt(size, 10), "--max", strconv.FormatInt(size, 10),
		"--duration", duration.String(), "--json", "-")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", cmd, err), ctx.Err(), errors.New(strings.TrimSpace(stderr.String())))
	}
	times, err := parse(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	for _, op := range ops {
		if times[op] <= 0 {
			return nil, fmt.Errorf("%s: no time for %s", cmd, op)
		}
	}
	return times, nil
}

// parse reads the JSON lines of "nexar bench".
func parse(out []byte) (map[string]float64, error) {
	times := make(map[string]float64)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var line struct {
			Op     string  `json:"op"`
			Median float64 `json:"p50_us"`
			Wrong  int64   `json:"wrong"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if line.Wrong != 0 {
			return nil, fmt.Errorf("%s: %d wrong elements", line.Op, line.Wrong)
		}
		times[line.Op] = line.Median
	}
	return times, lines.Err()
}
