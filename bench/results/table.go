package results

import (
	"fmt"
	"strings"
)

// Table compares a system of nexar with the best peer, as a Markdown table: a row for each operation, a column for each size,
// and in each cell the ratio of the times in each of states, above 1 where nexar is faster.
func (f *File) Table(ours System, untouched bool, states []Census) string {
	ops := f.Ops()
	sizes := f.Sizes(ops...)
	if len(sizes) > 0 && sizes[0] == 0 {
		sizes = sizes[1:] // that of operations without data, which stand in the first column
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, bytes := range sizes {
		fmt.Fprintf(&b, " %s |", Size(bytes))
	}
	b.WriteString(" mean |\n|---|" + strings.Repeat("--:|", len(sizes)+1) + "\n")
	for _, op := range ops {
		own := f.Sizes(op)
		empty := len(own) > 0 && own[0] == 0
		if empty && untouched {
			continue
		}
		lost := false
		var row strings.Builder
		for i, bytes := range sizes {
			if empty && i > 0 {
				row.WriteString(" |")
				continue
			}
			if empty {
				bytes = 0
			}
			text := each(states, func(s State) string {
				cell, v := f.ratio(ours, Point{op, bytes, untouched}, s)
				lost = lost || v == Slower
				return cell
			})
			fmt.Fprintf(&row, " %s |", text)
		}
		mean := each(states, func(s State) string {
			if t := f.Tally(ours, []string{op}, untouched, s); t.Points() > 0 {
				return Ratio(t.Mean)
			}
			return "–"
		})
		mark := ""
		if lost {
			mark = " ▼"
		}
		fmt.Fprintf(&b, "| %s%s |%s %s |\n", op, mark, row.String(), mean)
	}
	return b.String()
}

// each joins the texts for all states.
func each(states []Census, text func(State) string) string {
	var parts []string
	for _, s := range states {
		parts = append(parts, text(s.State))
	}
	return strings.Join(parts, " / ")
}

// ratio formats the ratio of the best peer's time to that of ours.
func (f *File) ratio(ours System, p Point, state State) (text string, v Verdict) {
	cell, best := f.Cell(ours, p, state), f.best(p, state)
	v, times := Compare(cell, best)
	switch v {
	case Unknown:
		return cell.lack(), v
	case Level:
		text = "≈" + Ratio(times)
	case Slower:
		text = "**" + Ratio(times) + "**"
	default:
		text = Ratio(times)
	}
	if cell.Few(p.Bytes) || best.Few(p.Bytes) {
		text += "°"
	}
	return text, v
}

// lack says why a cell has no good time: "fails", "wrong", or "–" if it was not measured.
func (c Cell) lack() string {
	switch {
	case c.Turns == 0 && c.Failures > 0:
		return "fails"
	case c.Wrong:
		return "wrong"
	}
	return "–"
}

// Times returns the times of all systems as a Markdown table: a row for each operation and size, a column for each system.
func (f *File) Times(untouched bool, states []Census) string {
	var b strings.Builder
	b.WriteString("| | |")
	for _, s := range f.Header.Systems {
		fmt.Fprintf(&b, " %s |", s.Label)
	}
	b.WriteString("\n|---|--:|" + strings.Repeat("--:|", len(f.Header.Systems)) + "\n")
	for _, op := range f.Ops() {
		for _, bytes := range f.Sizes(op) {
			if bytes == 0 && untouched {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |", op, Size(bytes))
			for _, s := range f.Header.Systems {
				fmt.Fprintf(&b, " %s |", each(states, func(state State) string {
					c := f.Cell(s, Point{op, bytes, untouched}, state)
					if !c.Good() {
						return c.lack()
					}
					text := Duration(c.US)
					if c.Few(bytes) {
						text += "°"
					}
					return text
				}))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// Ratio formats a ratio with two or three digits.
func Ratio(ratio float64) string {
	if ratio < 9.995 {
		return fmt.Sprintf("%.2f", ratio)
	}
	return fmt.Sprintf("%.0f", ratio)
}

// Duration formats microseconds with two or three digits and a unit.
func Duration(us float64) string {
	switch {
	case us < 9.95:
		return fmt.Sprintf("%.2f µs", us)
	case us < 999.5:
		return fmt.Sprintf("%.0f µs", us)
	case us < 9.95e3:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us < 999.5e3:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}

// Size formats a number of bytes, as MiB or KiB if it is a multiple, and no bytes as "".
func Size(bytes int) string {
	switch {
	case bytes == 0:
		return ""
	case bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
