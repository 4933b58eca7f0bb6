package server

import (
	"encoding/json"
	"strings"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

const (
	// historyMax bounds the history of a cluster, and namedMax the nodes of one kind that a view adds to it.
	historyMax, namedMax = 64, 8
	// whyMax bounds the reason of a change, in bytes.
	whyMax = 200
)

// noteView adds the nodes that a view has added and removed to the history.
func (r *clusterState) noteView(c change, before membership.View) {
	counts := make(map[string]int)
	note := func(what string, rank int, n membership.Node, why string) {
		if counts[what]++; counts[what] <= namedMax {
			r.note(trace.Change{Time: c.Time, Epoch: r.view.Epoch, Size: r.view.Size(), What: what, Rank: rank, Node: n.ID.String(), Name: n.Name, Why: why})
			return
		}
		for i := len(r.History) - 1; ; i-- {
			if last := &r.History[i]; last.What == what {
				last.More++
				return
			}
		}
	}
	for rank, n := range before.Nodes {
		if _, in := r.view.Rank(n.ID); in {
			continue
		}
		what := trace.Lost
		switch {
		case c.Left[n.ID]:
			what = trace.Left
		case c.Excluded[n.ID]:
			what = trace.Excluded
		}
		note(what, rank, n, c.Reasons[n.ID])
	}
	for rank, n := range r.view.Nodes {
		if _, was := before.Rank(n.ID); !was {
			note(trace.Joined, rank, n, "")
		}
	}
}

// note adds a change to the history, and drops the oldest if there are too many.
func (r *clusterState) note(c trace.Change) {
	c.Why = strings.ToValidUTF8(c.Why[:min(len(c.Why), whyMax)], "")
	r.History = append(r.History, c)
	r.History = r.History[max(0, len(r.History)-historyMax):]
}

// changes returns the history as JSON, without the oldest changes if it is too long.
func (r *clusterState) changes() []byte {
	for list := r.History; len(list) > 0; list = list[1:] {
		if b, err := json.Marshal(list); err == nil && len(b) <= wire.TraceBytesMax {
			return b
		}
	}
	return nil
}
