package results

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// A Line is one line of the protocol of all programs: a description of the system, a measurement
// of one rank, or an operation that is missing or has failed.
type Line struct {
	// About names the library, its version and the network.
	About string `json:"about"`

	Op        string  `json:"op"`
	Bytes     int     `json:"bytes"`
	Untouched bool    `json:"untouched"` // the vectors were not written anew before each iteration
	Ranks     int     `json:"ranks"`
	Rank      int     `json:"rank"`
	Iters     int     `json:"iters"`
	Median    float64 `json:"median_us"`
	Wrong     int     `json:"wrong"` // elements of this rank's result

	// Unsupported is set for an operation that the library does not have, Failed for one that
	// has failed at this size. Both have the reason.
	Unsupported string `json:"unsupported"`
	Failed      string `json:"failed"`
}

// Parse parses the lines of the protocol. It skips lines that do not start with a brace, such as
// those of launchers.
func Parse(output []byte) ([]Line, error) {
	var lines []Line
	for text := range bytes.Lines(output) {
		text = bytes.TrimSpace(text)
		if !bytes.HasPrefix(text, []byte("{")) {
			continue
		}
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %q: %w", text, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// An Entry is the result of one turn of one system for an operation at one size.
type Entry struct {
	Round     int     `json:"round"`
	System    string  `json:"system"`
	Op        string  `json:"op,omitempty"`
	Bytes     int     `json:"bytes"`
	Untouched bool    `json:"untouched,omitempty"`
	Iters     int     `json:"iters,omitempty"`
	US        float64 `json:"us,omitempty"`    // of the slowest rank, in microseconds
	Wrong     int     `json:"wrong,omitempty"` // elements, over all ranks
	// Before and After are the round trips of a cache line between two processors, before and after the turn, in microseconds.
	Before float64 `json:"before_us,omitempty"`
	After  float64 `json:"after_us,omitempty"`
	// Failed is the reason of a failure: of the operation, or of the whole turn if Bytes is 0.
	Failed string `json:"failed,omitempty"`
}

// Merge makes entries from the lines of one turn. If some ranks have not printed a measurement, it
// leaves the measurement out and returns an error together with the other entries. About is the
// program's description of the system.
func Merge(round int, system string, ranks int, lines []Line) (entries []Entry, about string, err error) {
	type key struct {
		op        string
		bytes     int
		untouched bool
	}
	at := make(map[key]int) // into entries
	seen := make(map[key]int)
	for _, l := range lines {
		k := key{l.Op, l.Bytes, l.Untouched}
		switch {
		case l.About != "":
			about = l.About
			continue
		case l.Unsupported != "" || l.Failed != "":
			why := l.Failed
			if l.Unsupported != "" {
				why = "unsupported: " + l.Unsupported
			}
			entries = append(entries, Entry{Round: round, System: system, Op: l.Op, Bytes: l.Bytes, Failed: why})
			continue
		case l.Ranks != ranks || l.Rank < 0 || l.Rank >= ranks || l.Median < 0 || l.Iters < 1:
			return nil, about, fmt.Errorf("%s of %d bytes: invalid line: rank %d of %d, %d iterations, median %v us; want a rank of %d, at least 1 iteration, and a median that is not negative", l.Op, l.Bytes, l.Rank, l.Ranks, l.Iters, l.Median, ranks)
		}
		i, ok := at[k]
		if !ok {
			i = len(entries)
			at[k] = i
			entries = append(entries, Entry{Round: round, System: system, Op: l.Op, Bytes: l.Bytes, Untouched: l.Untouched})
		}
		e := &entries[i]
		e.Iters, e.Wrong = l.Iters, e.Wrong+l.Wrong
		e.US = max(e.US, l.Median)
		seen[k]++
	}
	// After a turn that was killed, some ranks may lack the last measurement.
	whole := entries[:0]
	for _, e := range entries {
		if n := seen[key{e.Op, e.Bytes, e.Untouched}]; e.Failed == "" && n != ranks {
			err = fmt.Errorf("%s of %d bytes: %d of %d ranks printed a measurement", e.Op, e.Bytes, n, ranks)
			continue
		}
		whole = append(whole, e)
	}
	return whole, about, err
}
