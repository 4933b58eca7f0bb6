package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// String describes the operation in one line: "all_reduce #7 (2 × float32, sum) by ring,
// running for 3.2s, in round 1 of 2, waits for rank 2".
func (o Operation) String() string {
	var b strings.Builder
	b.WriteString(o.What())
	if o.Plan != "" {
		b.WriteString(" by " + o.Plan)
	}
	verb := "waits"
	switch o.Outcome {
	case "":
		b.WriteString(", running for " + took(o.Duration))
	case OK:
		b.WriteString(", took " + took(o.Duration))
	default:
		b.WriteString(", failed after " + took(o.Duration) + ": " + o.Outcome)
		verb = "waited"
	}
	if o.Rounds > 0 && o.Outcome != OK {
		fmt.Fprintf(&b, ", in round %d of %d", o.Round, o.Rounds)
	}
	if ranks := o.WaitsFor(); ranks != "" && o.Outcome != OK {
		fmt.Fprintf(&b, ", %s for %s", verb, ranks)
	}
	return b.String()
}

// What describes the call: "send to rank 2, tag 5, 80 × float32".
func (o *Operation) What() string {
	text := o.with()
	switch {
	case o.Op == "call":
		return text
	case !o.isMessage():
		return o.Call()
	case o.Tag < 0:
		text += ", any tag"
	default:
		text += fmt.Sprintf(", tag %d", o.Tag)
	}
	if o.Type != "" {
		text += fmt.Sprintf(", %d × %s", o.Length, o.Type)
	}
	return text
}

func (o *Operation) isMessage() bool { return slices.Contains([]string{"send", "recv", "probe"}, o.Op) }

// with describes a message or a call with its other rank: "send to rank 2".
func (o *Operation) with() string {
	preposition, peer := map[string]string{"send": "to", "call": "at"}[o.Op], "any rank"
	if o.Peer >= 0 {
		peer = fmt.Sprintf("rank %d", o.Peer)
	}
	switch {
	case o.Op == "call":
		return fmt.Sprintf("call of %q at %s", o.Function, peer)
	case !o.isMessage():
		return o.Op
	}
	return fmt.Sprintf("%s %s %s", o.Op, cmp.Or(preposition, "from"), peer)
}

// Call describes the parameters of a collective that are the same on all ranks:
// "all_reduce #7 (2 × float32, sum)".
func (o *Operation) Call() string {
	var parts []string
	if o.Type != "" {
		parts = append(parts, fmt.Sprintf("%d × %s", o.Length, o.Type))
	}
	if o.Counts != 0 {
		parts = append(parts, fmt.Sprintf("digest %06x", o.Counts))
	}
	if o.Reduce != "" {
		parts = append(parts, o.Reduce)
	}
	if o.Root >= 0 {
		parts = append(parts, fmt.Sprintf("root %d", o.Root))
	}
	text := o.Op
	if o.Seq > 0 {
		text += fmt.Sprintf(" #%d", o.Seq)
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

// WaitsFor names the ranks that the operation waits for or, if it has failed, waited for.
func (o *Operation) WaitsFor() string {
	switch {
	case len(o.Waiting) > 0:
		return ranks(o.Waiting, o.WaitingMore)
	case o.Running() && o.Seq == 0 && o.Peer < 0:
		return "any rank"
	}
	return ""
}

// namedMax bounds the ranks, or ranges of them, that are named in a line.
const namedMax = 8

// Ranks names ranks: "rank 2", "ranks 1–4, 7 and 9" or "ranks 0, 2 and 12 more".
func Ranks(list []int) string { return ranks(list, 0) }

func ranks(list []int, more int) string {
	if len(list) == 1 && more == 0 {
		return fmt.Sprintf("rank %d", list[0])
	}
	list = slices.Sorted(slices.Values(list))
	var names []string
	for i := 0; i < len(list); {
		end := i + 1
		for end < len(list) && list[end] == list[end-1]+1 {
			end++
		}
		switch {
		case len(names) == namedMax:
			more, end = more+len(list)-i, len(list)
		case end-i > 2:
			names = append(names, fmt.Sprintf("%d–%d", list[i], list[end-1]))
		default:
			end = i + 1
			names = append(names, strconv.Itoa(list[i]))
		}
		i = end
	}
	if more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return "ranks " + and(names)
}

// and joins the parts of a sentence.
func and(parts []string) string {
	last := len(parts) - 1
	if last < 1 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

// took formats a duration with about three digits.
func took(d time.Duration) string {
	for unit := time.Second; unit >= time.Microsecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return "less than 20ms" // below the resolution of the recorder
}

// String returns the text of [Snapshot.WriteTo].
func (s Snapshot) String() string {
	var b strings.Builder
	_, _ = s.WriteTo(&b) // cannot fail: a strings.Builder takes everything
	return b.String()
}

// WriteTo writes the snapshot as a table for people. Running operations are at its end.
func (s Snapshot) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "rank %d of %d, epoch %d, node %s", s.Rank, s.Size, s.Epoch, s.Node)
	if s.Name != "" {
		fmt.Fprintf(&b, " (%s)", s.Name)
	}
	fmt.Fprintf(&b, ", at %s\n", s.Time.Format("2006-01-02 15:04:05.000 MST"))
	if len(s.Operations) == 0 {
		b.WriteString("no operations\n")
	} else {
		s.table(&b)
	}
	return b.WriteTo(w)
}

func (s *Snapshot) table(w io.Writer) {
	list := slices.Clone(s.Operations)
	slices.SortStableFunc(list, func(a, b Operation) int { return sign(a.Running()) - sign(b.Running()) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "START\tCOMM\tOPERATION\tPLAN\tTIME\tROUND\tBYTES\tOUTCOME\tWAITS FOR")
	for i := range list {
		o := &list[i]
		comm := o.Comm
		if o.Purpose != "" {
			comm += " (" + o.Purpose + ")"
		}
		outcome := cmp.Or(o.Outcome, "running")
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", o.Start.Format("15:04:05.000"), comm, o.What(),
			cmp.Or(o.Plan, "-"), took(o.Duration), o.rounds(), o.Bytes, outcome, cmp.Or(o.WaitsFor(), "-"))
	}
	t.Flush()
}

// rounds is "1/2", or "-" for an operation without rounds.
func (o *Operation) rounds() string {
	if o.Rounds == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", o.Round, o.Rounds)
}

func sign(b bool) int {
	if b {
		return 1
	}
	return 0
}
