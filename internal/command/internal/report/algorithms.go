package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/command/internal/bench"
)

// Algorithms writes comparisons, one table for each.
type Algorithms struct {
	w     io.Writer
	begun bool
}

// NewAlgorithms returns an Algorithms that writes to w.
func NewAlgorithms(w io.Writer) *Algorithms { return &Algorithms{w: w} }

// Add writes the table of c.
func (t *Algorithms) Add(c bench.Comparison) error {
	var b strings.Builder
	if !t.begun {
		t.begun = true
		fmt.Fprintf(&b, "%s; medians and quartiles over rounds in which all algorithms take turns\n", conditions(c.Ranks, c.Transport, c.Encrypted, c.Device))
		if c.Device != "" {
			b.WriteString("cost and choice are those for vectors in memory of the host\n")
		}
	}
	fmt.Fprintf(&b, "\n%s: %s of %s\n", atSize(c), Count(c.Rounds, "round"), Count(c.Runs, "run"))
	fmt.Fprintf(&b, "  %-24s %-11s %10s %10s %10s %10s %6s\n", "algorithm", "over", "cost", "p50", "q1", "q3", "ratio")
	cost, fastest := leastOf(c)
	for _, w := range c.Ways {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-24s %-11s %10s %10s %10s %10s %6s  %s",
			w.Algorithm, carrier(w.Shared, w.Channels), relative(w.Predicted, cost), Micros(w.P50), Micros(w.Q1), Micros(w.Q3), relative(w.P50, fastest), marks(w)), " ") + "\n")
	}
	if len(c.Left) > 0 {
		fmt.Fprintf(&b, "  not measured, since the cost is more than %d:\n", bench.SlowerMax)
	}
	for _, a := range c.Left {
		fmt.Fprintf(&b, "  %-24s %-11s %10s\n", a.Name, carrier(a.Shared, a.Channels), relative(micros(a.Predicted), cost))
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

// atSize names a comparison: "all_reduce of 64 KiB".
func atSize(c bench.Comparison) string {
	if c.Bytes == 0 {
		return c.Op
	}
	return c.Op + " of " + Size(c.Bytes)
}

// carrier names the path of an algorithm: memory, or a number of channels.
func carrier(shared bool, channels int) string {
	if shared {
		return "memory"
	}
	return Count(channels, "channel")
}

// leastOf returns the least predicted and the least measured time of a comparison, in microseconds, 0 if
// there is none.
func leastOf(c bench.Comparison) (cost, fastest float64) {
	least := func(a, b float64) float64 {
		if a == 0 || b > 0 && b < a {
			return b
		}
		return a
	}
	for _, w := range c.Ways {
		cost, fastest = least(cost, w.Predicted), least(fastest, w.P50)
	}
	for _, a := range c.Left {
		cost = least(cost, micros(a.Predicted))
	}
	return cost, fastest
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// relative returns a time divided by the least one, "-" if it is unknown.
func relative(t, least float64) string {
	if t == 0 || least == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", t/least)
}

// marks returns the marks of a way: chosen, fastest, wrong elements.
func marks(w bench.Way) string {
	var list []string
	switch {
	case w.Chosen && (w.ChosenBy == "hint" || w.ChosenBy == "setting"):
		list = append(list, "chosen by a "+w.ChosenBy)
	case w.Chosen:
		list = append(list, "chosen")
	}
	if w.Fastest {
		list = append(list, "fastest")
	}
	if w.Wrong > 0 {
		list = append(list, Count(int(w.Wrong), "wrong element"))
	}
	return strings.Join(list, ", ")
}

// Verdicts returns a line for each operation about the quality of the choices.
func Verdicts(list []bench.Comparison) string {
	var b strings.Builder
	for _, v := range bench.Judge(list) {
		fmt.Fprintf(&b, "%s: the choice is within %.0f %% of the fastest at %d of %s", v.Op, 100*(bench.NearBest-1), v.Near, Count(v.Sizes, "size"))
		if v.Worst > 1 {
			at := ""
			if v.Chosen.Bytes > 0 {
				at = " at " + Size(v.Chosen.Bytes)
			}
			fmt.Fprintf(&b, "; at worst it takes %.2f times as long%s, by %s instead of %s", v.Worst, at, wayName(v.Chosen), wayName(v.Fastest))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wayName names a way in a sentence.
func wayName(w bench.Way) string {
	return fmt.Sprintf("%s (%s)", w.Algorithm, carrier(w.Shared, w.Channels))
}

// AlgorithmsSummary returns a line with the number of comparisons, measurements and wrong elements.
func AlgorithmsSummary(list []bench.Comparison, took time.Duration) string {
	ops, ways := map[string]bool{}, 0
	for _, c := range list {
		ops[c.Op] = true
		ways += len(c.Ways)
	}
	return fmt.Sprintf("%s, %s, %s, %s, in %.1f s", Count(len(ops), "operation"), Count(len(list), "comparison"),
		Count(ways, "measurement"), Count(int(WrongElements(list)), "wrong element"), took.Seconds())
}

// WrongElements returns the number of wrong elements in all comparisons.
func WrongElements(list []bench.Comparison) (wrong int64) {
	for _, c := range list {
		for _, w := range c.Ways {
			wrong += w.Wrong
		}
	}
	return wrong
}
