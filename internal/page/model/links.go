package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nexar-go/nexar/trace"
)

// classOf names the kind of a link.
func classOf(l *trace.Link) string {
	name := cmp.Or(l.Class, l.Transport, "unknown")
	if l.Hops > 1 {
		name = fmt.Sprintf("relays, %d hops", l.Hops)
	}
	return name
}

// links returns the busiest links and the sums of classes. A link counts once, for the rank that sends.
func (m *Model) links(c *trace.Cluster) (list []Link, classes []Class) {
	by := make(map[string]*Class)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Snapshot == nil || n.Rank < 0 {
			continue
		}
		kept := m.nodes[n.Node]
		took := n.Snapshot.Time.Sub(kept.linked).Seconds()
		sent := make(map[int]uint64, len(n.Snapshot.Links))
		for j := range n.Snapshot.Links {
			l := &n.Snapshot.Links[j]
			sent[l.Rank] = l.Sent
			link := Link{From: n.Rank, To: l.Rank, Class: classOf(l), Rate: -1, Sent: l.Sent, Notes: notes(l)}
			if before, ok := kept.sent[l.Rank]; ok && took > 0 && l.Sent >= before {
				link.Rate = float64(l.Sent-before) / took
			}
			class := by[link.Class]
			if class == nil {
				class = &Class{Name: link.Class}
				by[link.Class] = class
			}
			class.Links++
			class.Rate += max(link.Rate, 0)
			class.Stalled += btoi(l.Stalled > 0)
			if link.Rate <= 0 && link.Notes == "" {
				continue
			}
			if len(list) < linksMax || busier(&link, &list[len(list)-1]) < 0 {
				at, _ := slices.BinarySearchFunc(list, link, func(a, b Link) int { return busier(&a, &b) })
				list = slices.Insert(list, at, link)
				list = list[:min(len(list), linksMax)]
			}
		}
		kept.sent, kept.linked = sent, n.Snapshot.Time
	}
	for _, c := range by {
		classes = append(classes, *c)
	}
	slices.SortFunc(classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Links, a.Links), cmp.Compare(a.Name, b.Name))
	})
	return list, classes
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// busier orders links: those with notes first, then the fastest.
func busier(a, b *Link) int {
	return cmp.Or(cmp.Compare(btoi(b.Notes != ""), btoi(a.Notes != "")), cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Sent, a.Sent), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
}

// notes describes the problems of a link.
func notes(l *trace.Link) string {
	var parts []string
	if l.Stalled > 0 {
		parts = append(parts, "stalls for "+short(l.Stalled))
	}
	if l.Stalls > 0 {
		parts = append(parts, plural(l.Stalls, "stall"))
	}
	if l.Connections > 1 {
		parts = append(parts, plural(uint64(l.Connections-1), "reconnection"))
	}
	if l.Lost > 0 {
		parts = append(parts, plural(l.Lost, "lost packet"))
	}
	return strings.Join(parts, ", ")
}

func plural(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
