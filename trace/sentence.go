package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A group is ranks that do the same: "been in barrier #12" for a time. 0 is an unknown time.
type group struct {
	doing string
	site  string // in the program, if it is the same for all ranks
	ranks []int
	time  time.Duration
}

// String is "has been in barrier #12 (train/main.go:42) for 14 s".
func (g group) String() string {
	text := agree("", len(g.ranks), "has", "have") + " " + g.doing + g.at()
	if g.time > 0 {
		text += " for " + span(g.time)
	}
	return text
}

// where is "in barrier #12".
func (g *group) where() string { return strings.TrimPrefix(g.doing, "been ") }

// at is " (train/main.go:42)".
func (g *group) at() string {
	if g.site == "" {
		return ""
	}
	return " (" + clip(g.site) + ")"
}

// groups groups ranks by their calls, the largest group first. Its time is the shortest of its ranks.
func (a *world) groups(list []int) (groups []group) {
	at := make(map[string]int)
	for _, r := range list {
		doing, d := a.doing(r)
		site := a.site(r)
		i, known := at[doing]
		if !known {
			i = len(groups)
			at[doing] = i
			groups = append(groups, group{doing: doing, site: site, time: d})
		}
		if groups[i].site != site {
			groups[i].site = ""
		}
		groups[i].ranks, groups[i].time = append(groups[i].ranks, r), min(groups[i].time, d)
	}
	sortGroups(groups)
	return groups
}

func sortGroups(groups []group) {
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Or(-cmp.Compare(len(a.ranks), len(b.ranks)), cmp.Compare(a.ranks[0], b.ranks[0]))
	})
}

// doing describes the call of a rank, with its time.
func (a *world) doing(rank int) (text string, d time.Duration) {
	s, n := a.ranks[rank], a.nodes[rank]
	switch o := a.in[rank]; {
	case o != nil:
		return "been in " + o.short(), o.Duration
	case s != nil:
		last := a.last(rank)
		if last == nil {
			return "made no call", 0
		}
		return "been in no call", max(s.Time.Sub(last.Start.Add(last.Duration)), time.Microsecond)
	case n == nil && a.nodes != nil:
		return "", 0 // It is unknown.
	case n == nil:
		return "not answered", 0
	case n.Snapshot != nil:
		return fmt.Sprintf("not reached epoch %d", a.epoch), 0
	}
	return clip(strings.TrimPrefix(n.Missing, "has ")), n.Silent
}

// site returns the place of a rank in its program, if it is known.
func (a *world) site(rank int) string {
	if o := a.in[rank]; o != nil {
		return o.Site
	}
	if s := a.ranks[rank]; s != nil {
		return s.Site
	}
	return ""
}

// list is "ranks 0–5 in barrier #12, rank 6 in recv from rank 0 and 3 more in other calls".
func (a *world) list(groups []group) string {
	var parts []string
	more := 0
	for i := range groups {
		if i < groupsMax {
			parts = append(parts, a.who(groups[i].ranks)+" "+groups[i].where()+groups[i].at())
		} else {
			more += len(groups[i].ranks)
		}
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("%d more in other calls", more))
	}
	return and(parts)
}

// wait is "Ranks 0–6 wait in barrier #12 (train/main.go:42) for rank 7" or, of ranks in several calls, "Ranks 0–6 wait, 5 of them in
// barrier #12, for rank 7".
func (a *world) wait(waiters, others []int) string {
	text, by := capital(agree(a.who(waiters), len(waiters), "waits", "wait")), a.groups(waiters)
	whom, named := "", ""
	if len(others) > 0 {
		whom, named = " for "+a.who(others), ranks(others, 0)
	}
	where := by[0].where()
	if len(by) > 1 {
		return fmt.Sprintf("%s, %d of them %s%s,%s", text, len(by[0].ranks), where, by[0].at(), whom)
	}
	if whom != "" && strings.HasSuffix(where, " "+named) { // "recv from rank 1"
		where, whom = where+strings.TrimPrefix(whom, " for "+named), ""
	}
	return text + " " + where + by[0].at() + whom
}

// who names ranks, with their host if all are on one of several hosts: "rank 7 on host b".
func (a *world) who(list []int) string {
	text := ranks(list, 0)
	host := a.host(list[0])
	if !a.hosts || host == "" || slices.ContainsFunc(list, func(r int) bool { return a.host(r) != host }) {
		return text
	}
	return on(text, host)
}

// on is "rank 7 on host b".
func on(ranks, host string) string {
	if host == "" {
		return ranks
	}
	return ranks + " on host " + clip(host)
}

// has is "rank 7 on host b has".
func (a *world) has(list []int) string { return agree(a.who(list), len(list), "has", "have") }

// host returns the name of the host of a rank, or nothing.
func (a *world) host(rank int) string {
	name := ""
	if n := a.nodes[rank]; n != nil {
		name = n.Name
	} else if s := a.ranks[rank]; s != nil {
		name = s.Name
	}
	return hostOf(name)
}

// hostOf returns the host in the name of a process.
func hostOf(name string) string { return name[:max(0, strings.LastIndexByte(name, ':'))] }

// short is a call without its parameters: "all_reduce #7", "recv from rank 0".
func (o *Operation) short() string {
	if o.Seq > 0 {
		return clip(fmt.Sprintf("%s #%d", o.Op, o.Seq))
	}
	return clip(o.with())
}

// some returns the first ranks of a list.
func some(list []int) []int { return list[:min(len(list), ranksMax)] }

// agree is a subject with the form of a verb for so many.
func agree(subject string, n int, singular, plural string) string {
	if n == 1 {
		plural = singular
	}
	return strings.TrimPrefix(subject+" "+plural, " ")
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// clip bounds a name from another node.
func clip(text string) string { return clipTo(text, 64) }

func clipTo(text string, most int) string {
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// span is a duration in one unit: "40 ms", "14 s".
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}
