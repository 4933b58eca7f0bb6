package results

import (
	"fmt"
	"math"
	"strings"
)

// Table returns the results of one operation as a Markdown table: a row for each size, a column for
// each system, and a column for each system of nexar with the ratio of the fastest other system's
// time to its time.
func (f *File) Table(op string) string {
	columns, ours, others := f.columns(op)
	var b strings.Builder
	b.WriteString("| bytes |")
	for _, s := range columns {
		fmt.Fprintf(&b, " %s |", s.Label)
	}
	compared := len(others) > 0
	if compared {
		for _, s := range ours {
			fmt.Fprintf(&b, " best other ÷ %s |", strings.TrimPrefix(s.Label, "nexar "))
		}
	}
	b.WriteString("\n|--:|" + strings.Repeat("--:|", len(columns)))
	if compared {
		b.WriteString(strings.Repeat("--:|", len(ours)))
	}
	b.WriteString("\n")
	for _, bytes := range f.Sizes(op) {
		best := f.best(columns, op, bytes)
		fmt.Fprintf(&b, "| %s |", Size(bytes))
		for _, s := range columns {
			text := f.Cell(s, op, bytes).String()
			if s.Name == best.Name {
				text = "**" + text + "**"
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		if compared {
			for _, s := range ours {
				fmt.Fprintf(&b, " %s |", f.ratio(s, others, op, bytes))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// columns returns the systems that have measured the operation or have failed at it.
func (f *File) columns(op string) (all, ours, others []System) {
	for _, s := range f.Header.Systems {
		have := false
		for _, bytes := range f.Sizes(op) {
			c := f.Cell(s, op, bytes)
			have = have || c.Rounds > 0 || c.Failures > 0
		}
		if !have {
			continue
		}
		all = append(all, s)
		switch {
		case s.Bound:
		case s.Ours:
			ours = append(ours, s)
		default:
			others = append(others, s)
		}
	}
	return all, ours, others
}

// best returns the fastest system with correct results, or the zero System.
func (f *File) best(systems []System, op string, bytes int) System {
	var best System
	least := math.Inf(1)
	for _, s := range systems {
		if c := f.Cell(s, op, bytes); !s.Bound && c.Good() && c.US < least {
			best, least = s, c.US
		}
	}
	return best
}

// ratio formats the ratio of the time of the fastest of others to that of ours.
func (f *File) ratio(ours System, others []System, op string, bytes int) string {
	best := f.best(others, op, bytes)
	v, times := Compare(f.Cell(ours, op, bytes), f.Cell(best, op, bytes))
	switch v {
	case Unknown:
		return "—"
	case Level:
		return "≈ " + Times(times)
	}
	return Times(times)
}

// String formats the time. Without one it returns "fails", "wrong" or "—".
func (c Cell) String() string {
	switch {
	case c.Rounds == 0 && c.Failures > 0:
		return "fails"
	case c.Rounds == 0:
		return "—"
	case c.Wrong:
		return "wrong"
	case c.Failures > 0:
		return Duration(c.US) + fmt.Sprintf(" (failed %d×)", c.Failures)
	}
	return Duration(c.US)
}

// Duration formats microseconds with two or three digits and a unit.
func Duration(us float64) string {
	switch {
	case us < 1:
		return fmt.Sprintf("%.2f µs", us)
	case us < 9.95:
		return fmt.Sprintf("%.1f µs", us)
	case us < 999.5:
		return fmt.Sprintf("%.0f µs", us)
	case us < 9.95e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us < 999.5e3:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}

// Times formats a ratio with two or three digits.
func Times(ratio float64) string {
	if ratio < 9.95 {
		return fmt.Sprintf("%.2f×", ratio)
	}
	return fmt.Sprintf("%.0f×", ratio)
}

// Size formats a number of bytes, as MiB or KiB if it is a multiple.
func Size(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
