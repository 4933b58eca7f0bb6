package launch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/launch/internal/text"
)

// nodesBytes limits the text of an expanded node list.
const nodesBytes = 64 << 20

// ExpandNodes returns the names of a node list in Slurm's notation, in its order. A list has names separated by
// commas; each can have ranges in brackets, at several places: "n1", "n[1-3,7]", "n[01-10]" (with leading zeros),
// "rack[0-1]n[0-3]" (the last range changes fastest), "n[1-2]-ib0", and "n[0-8:2]" with a step.
//
// A list of more than 1048576 nodes, or 64 MiB of names, is an error.
func ExpandNodes(list string) ([]string, error) {
	var names []string
	bytes := 0
	for rest, more := list, true; more; {
		var item string
		var err error
		if item, rest, more, err = cutItem(rest); err != nil {
			return nil, fmt.Errorf("node list %s: %w", text.Quote(list), err)
		}
		// The names of an item so far; each range multiplies them.
		expanded := []string{""}
		for item != "" {
			fixed, after, bracket := strings.Cut(item, "[")
			ends := []string{fixed}
			if item = ""; bracket {
				inside, afterwards, closed := strings.Cut(after, "]")
				if !closed || strings.Contains(inside, "[") {
					return nil, fmt.Errorf("node list %s: a [ has no ]: expected names such as n[1-3,7]", text.Quote(list))
				}
				item = afterwards
				numbers, err := expandNumbers(inside, sizeMax-len(names))
				if err != nil {
					return nil, fmt.Errorf("node list %s: %w", text.Quote(list), err)
				}
				ends = numbers
			} else {
				fixed = ""
			}
			if len(ends) > (sizeMax-len(names))/len(expanded) {
				return nil, tooMany(list)
			}
			next := make([]string, 0, len(expanded)*len(ends))
			for _, begin := range expanded {
				for _, end := range ends {
					name := begin + fixed + end
					if bytes += len(name); bytes > nodesBytes {
						return nil, tooMany(list)
					}
					next = append(next, name)
				}
			}
			expanded = next
		}
		for _, name := range expanded {
			if name == "" || strings.ContainsAny(name, "[] \t\r\n") {
				return nil, fmt.Errorf("node list %s: %s is no name: expected names such as n[1-3,7]", text.Quote(list), text.Quote(name))
			}
		}
		names = append(names, expanded...)
		if len(names) > sizeMax {
			return nil, tooMany(list)
		}
	}
	return names, nil
}

func tooMany(list string) error {
	return fmt.Errorf("node list %s: more than %d nodes or %d MiB of names: expected fewer", text.Quote(list), sizeMax, nodesBytes>>20)
}

// cutItem cuts a list at its first comma outside brackets.
func cutItem(list string) (item, rest string, more bool, err error) {
	inside := false
	for i, c := range []byte(list) {
		switch {
		case c == '[' && inside, c == ']' && !inside:
			return "", "", false, errors.New("brackets do not match: expected names such as n[1-3,7]")
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == ',' && !inside:
			return list[:i], list[i+1:], true, nil
		}
	}
	return list, "", false, nil
}

const zeros = "0000000000" // as many digits as a number can have

// expandNumbers expands what is between brackets, such as 1-3,07,10-20:5, to at most most numbers.
func expandNumbers(s string, most int) ([]string, error) {
	var numbers []string
	for part := range strings.SplitSeq(s, ",") {
		span, stepText, stepped := strings.Cut(part, ":")
		first, last, ranged := strings.Cut(span, "-")
		if !ranged {
			last = first
		}
		low, ok1 := parseNumber(first)
		high, ok2 := parseNumber(last)
		step, ok3 := 1, true
		if stepped {
			step, ok3 = parseNumber(stepText)
		}
		if !ok1 || !ok2 || !ok3 || high < low || step < 1 || stepped && !ranged {
			return nil, fmt.Errorf("%s is no range: expected numbers such as 1-3,7", text.Quote(part))
		}
		if (high-low)/step >= most-len(numbers) {
			return nil, fmt.Errorf("%s makes more than %d nodes: expected fewer", text.Quote(part), sizeMax)
		}
		for n := low; n <= high; n += step {
			digits := strconv.Itoa(n)
			numbers = append(numbers, zeros[:max(0, len(first)-len(digits))]+digits)
		}
	}
	return numbers, nil
}

// TasksPerNode returns the number of tasks of each node from Slurm's notation: "4,1(x2)" is 4, 1, 1.
// More than 1048576 nodes are an error.
func TasksPerNode(s string) ([]int, error) {
	var tasks []int
	for part := range strings.SplitSeq(s, ",") {
		count, after, repeated := strings.Cut(part, "(x")
		n, ok := parseNumber(count)
		times := 1
		if repeated {
			inside, closed := strings.CutSuffix(after, ")")
			t, isNumber := parseNumber(inside)
			times, ok = t, ok && closed && isNumber && t > 0
		}
		if !ok {
			return nil, fmt.Errorf("tasks per node %s: %s is no number of tasks: expected numbers such as 4,1(x2)", text.Quote(s), text.Quote(part))
		}
		if times > sizeMax-len(tasks) {
			return nil, fmt.Errorf("tasks per node %s: more than %d nodes: expected fewer", text.Quote(s), sizeMax)
		}
		for range times {
			tasks = append(tasks, n)
		}
	}
	return tasks, nil
}
