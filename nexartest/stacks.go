package nexartest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
)

// rankLabel is the pprof label of the goroutines of a rank, and of the goroutines that they start.
const rankLabel = "nexar rank"

// labelled calls f with the label of a rank.
func labelled(rank int, f func()) {
	pprof.Do(context.Background(), pprof.Labels(rankLabel, strconv.Itoa(rank)), func(context.Context) { f() })
}

// stacks returns the stacks of all goroutines of ranks. A stack that several goroutines share occurs
// once, with their number.
func stacks(ranks []int) string {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // writing to a bytes.Buffer does not fail
	var out strings.Builder
	for _, rank := range ranks {
		label := fmt.Sprintf("%q:%q", rankLabel, strconv.Itoa(rank))
		for block := range strings.SplitSeq(all.String(), "\n\n") {
			count, rest, ok := strings.Cut(block, " @ ")
			if !ok || !strings.Contains(rest, label) {
				continue
			}
			if i := strings.LastIndexByte(count, '\n'); i >= 0 {
				count = count[i+1:] // the first block begins with a heading
			}
			fmt.Fprintf(&out, "rank %d, %s:\n%s\n", rank, goroutines(count), frames(rest))
		}
	}
	return out.String()
}

func goroutines(count string) string {
	if count == "1" {
		return "1 goroutine"
	}
	return count + " goroutines"
}

// frames returns the calls of a stack with their source positions.
func frames(stack string) string {
	var out strings.Builder
	for line := range strings.SplitSeq(stack, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "#" || !strings.HasPrefix(fields[1], "0x") {
			continue // addresses, labels
		}
		name, _, _ := strings.Cut(fields[2], "+0x")
		fmt.Fprintf(&out, "\t%s\n\t\t%s\n", name, strings.Join(fields[3:], " "))
	}
	return out.String()
}
