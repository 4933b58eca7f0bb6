package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// A change is a decision that the seeds of a cluster agree on before any of them acts on it.
// As JSON it is an entry of their log.
type change struct {
	Kind changeKind
	// Authority is the cluster's, of a changeFound.
	Authority []byte `json:",omitempty"`
	// Entries make the next view, of a changeView. Reasons say why nodes are removed, and Left
	// contains those that have left on their own, and Excluded those that others have excluded.
	Entries  []membership.Entry           `json:",omitempty"`
	Reasons  map[membership.NodeID]string `json:",omitempty"`
	Left     map[membership.NodeID]bool   `json:",omitempty"`
	Excluded map[membership.NodeID]bool   `json:",omitempty"`
	// Topology is that of all nodes of the world, of the changeView with its first view.
	Topology string `json:",omitempty"`
	// Failure is the reason why the world did not form, of a changeOver.
	Failure string `json:",omitempty"`
	// Term is the term of the leader that proposes the change, and Time the time by its clock.
	Term uint64    `json:",omitempty"`
	Time time.Time `json:",omitzero"`
}

type changeKind string

const (
	changeFound  changeKind = "found"  // the cluster has this authority
	changeView   changeKind = "view"   // the world has another view
	changeFormed changeKind = "formed" // the world of the first view has formed
	changeOver   changeKind = "over"   // the world did not form, or all its nodes have gone
	changeEnd    changeKind = "end"    // all reachable seeds know that the world is over, and end
	changeAnew   changeKind = "anew"   // another world begins
)

// A clusterState is the state of the cluster after all changes of the log. It outlives each
// seed.
type clusterState struct {
	authority *pki.Authority // nil: there is none yet
	state     membership.State
	view      membership.View // the newest of this world
	world
}

// world is the part of a clusterState that is kept as it is in a snapshot.
type world struct {
	Begun    bool // the world has a view
	Formed   bool
	Over     bool
	OverTerm uint64                          `json:",omitempty"` // the term of the end of the world
	Failure  string                          `json:",omitempty"` // the reason why the world did not form
	Topology string                          `json:",omitempty"` // of all nodes; empty: full
	Gone     map[membership.NodeID]departure `json:",omitempty"` // the latest departures
	History  []trace.Change                  `json:",omitempty"` // the latest changes, also of earlier worlds
}

// A departure says how a node has gone.
type departure struct {
	Reason   string
	Left     bool // by its own decision
	Excluded bool `json:",omitempty"` // by other nodes
	// Place and Host are those of the node.
	Place, Host string `json:",omitempty"`
}

// goneMax is the maximum number of departures in a clusterState.
const goneMax = 256

// try reports whether entries make a valid view.
func (r *clusterState) try(entries []membership.Entry) error {
	trial, err := membership.RestoreState(r.state.View(), r.state.Used())
	if err == nil {
		_, err = trial.ApplyAll(entries)
	}
	return err
}

// apply applies a change, the same on all seeds. An error says that the change contradicts the
// state, which is then unchanged.
func (r *clusterState) apply(c change) (err error) {
	switch c.Kind {
	case changeFound:
		if r.authority != nil {
			return errors.New("the cluster has an authority")
		}
		r.authority, err = pki.ParseAuthority(c.Authority)
		return err
	case changeView:
		before := r.view
		v, err := r.state.ApplyAll(c.Entries)
		if err != nil {
			return err
		}
		if !r.Begun {
			r.Topology = c.Topology
		}
		r.view, r.Begun = v, true
		if r.Gone == nil || len(r.Gone)+len(c.Reasons) > goneMax {
			r.Gone = make(map[membership.NodeID]departure)
		}
		for _, n := range before.Nodes {
			if why, gone := c.Reasons[n.ID]; gone {
				r.Gone[n.ID] = departure{Reason: why, Left: c.Left[n.ID], Excluded: c.Excluded[n.ID], Place: n.Place, Host: n.Host}
			}
		}
		if r.Formed {
			r.noteView(c, before)
		}
	case changeFormed:
		if !r.Begun || r.Over {
			return errors.New("there is no world to form")
		}
		r.Formed = true
		r.note(trace.Change{Time: c.Time, Epoch: r.view.Epoch, Size: r.view.Size(), What: trace.Formed})
	case changeOver:
		r.Over, r.OverTerm, r.Failure = true, c.Term, c.Failure
		r.note(trace.Change{Time: c.Time, Epoch: r.view.Epoch, Size: r.view.Size(), What: trace.Over, Why: c.Failure})
	case changeEnd:
	case changeAnew:
		return r.anew()
	default:
		return fmt.Errorf("unknown kind of change %q", c.Kind)
	}
	return nil
}

// lastMessage returns the last message to a node that was in the world.
func (r *clusterState) lastMessage(id membership.NodeID) wire.JoinMessage {
	switch d, known := r.Gone[id]; {
	case d.Left:
		return wire.JoinLeave{}
	case d.Excluded:
		return wire.JoinExcluded{Text: d.Reason}
	case known:
		return wire.JoinFailed{Text: d.Reason}
	case r.Over && r.Failure != "":
		return wire.JoinFailed{Text: r.Failure}
	}
	return wire.JoinFailed{Text: "it was away for long, and the world has gone on without it"}
}

// anew begins another world, without an epoch or a node of earlier worlds.
func (r *clusterState) anew() error {
	if r.Begun && r.view.Size() > 0 {
		gone := membership.Entry{Kind: membership.Fail}
		for _, n := range r.view.Nodes {
			gone.IDs = append(gone.IDs, n.ID)
		}
		if _, err := r.state.Apply(gone); err != nil {
			return err
		}
	}
	r.view, r.world = membership.View{}, world{Gone: r.Gone, History: r.History}
	return nil
}

// A snapshot is a clusterState as JSON.
type snapshot struct {
	Authority []byte
	View      membership.View
	Used      []membership.NodeID
	world
}

func (r *clusterState) marshal() (b []byte, err error) {
	s := snapshot{View: r.state.View(), Used: r.state.Used(), world: r.world}
	if r.authority != nil {
		if s.Authority, err = r.authority.Marshal(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(s)
}

func parseClusterState(b []byte) (r clusterState, err error) {
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return r, err
	}
	if len(s.Authority) > 0 {
		if r.authority, err = pki.ParseAuthority(s.Authority); err != nil {
			return r, err
		}
	}
	if r.state, err = membership.RestoreState(s.View, s.Used); err != nil {
		return r, err
	}
	if r.world = s.world; r.Begun {
		r.view = r.state.View()
	}
	return r, nil
}
