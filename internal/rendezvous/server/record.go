package server

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
)

// A change is a decision that the seeds of a cluster agree on before any of them acts on it.
// As JSON it is an entry of their log.
type change struct {
	Kind changeKind
	// Authority is the cluster's, of a changeFound.
	Authority []byte `json:",omitempty"`
	// Entries make the next view, of a changeView; Reasons say why nodes go, and Left
	// which of them in good order.
	Entries []membership.Entry           `json:",omitempty"`
	Reasons map[membership.NodeID]string `json:",omitempty"`
	Left    map[membership.NodeID]bool   `json:",omitempty"`
	// Failure is why the world did not form, of a changeOver.
	Failure string `json:",omitempty"`
	// Term is the term of the leader that proposes a changeOver.
	Term uint64 `json:",omitempty"`
}

type changeKind string

const (
	changeFound  changeKind = "found"  // the cluster has this authority
	changeView   changeKind = "view"   // the world has another view
	changeFormed changeKind = "formed" // the world of the first view has formed
	changeOver   changeKind = "over"   // the world did not form, or all its nodes have gone
	changeEnd    changeKind = "end"    // all seeds that can be reached know that the world is over, and end
	changeAnew   changeKind = "anew"   // another world begins
)

// A record is the result of all changes. It outlives each seed.
type record struct {
	authority *pki.Authority // nil: there is none yet
	state     membership.State
	view      membership.View // the newest
	begun     bool            // there is one of this world
	formed    bool
	over      bool
	overTerm  uint64                          // the term in which the world has ended
	failure   string                          // why the world is over, if it did not form
	gone      map[membership.NodeID]departure // nodes, the last ones
}

// try reports whether entries make a view here.
func (r *record) try(entries []membership.Entry) error {
	trial, err := membership.RestoreState(r.state.View(), r.state.Used())
	if err == nil {
		_, err = trial.ApplyAll(entries)
	}
	return err
}

// A departure is how a node has gone.
type departure struct {
	Reason string
	Left   bool // in good order
}

// goneMax is how many departures a record has.
const goneMax = 256

// apply makes a change. An error says that it makes no sense here; it is the same on
// all seeds, and so is the record then.
func (r *record) apply(c change) (err error) {
	switch c.Kind {
	case changeFound:
		if r.authority != nil {
			return errors.New("the cluster has an authority")
		}
		r.authority, err = pki.ParseAuthority(c.Authority)
		return err
	case changeView:
		v, err := r.state.ApplyAll(c.Entries)
		if err != nil {
			return err
		}
		r.view, r.begun = v, true
		r.remember(c)
	case changeFormed:
		if !r.begun || r.over {
			return errors.New("there is no world that could have formed")
		}
		r.formed = true
	case changeOver:
		r.over, r.overTerm, r.failure = true, c.Term, c.Failure
	case changeEnd:
	case changeAnew:
		return r.anew()
	default:
		return fmt.Errorf("unknown kind of change %q", c.Kind)
	}
	return nil
}

func (r *record) remember(c change) {
	if r.gone == nil || len(r.gone)+len(c.Reasons) > goneMax {
		r.gone = make(map[membership.NodeID]departure)
	}
	for id, why := range c.Reasons {
		r.gone[id] = departure{why, c.Left[id]}
	}
}

// farewell is the last message to a node that was in the world.
func (r *record) farewell(id membership.NodeID) wire.JoinMessage {
	switch d, known := r.gone[id]; {
	case d.Left:
		return wire.JoinLeave{}
	case known:
		return wire.JoinFailed{Text: d.Reason}
	case r.over && r.failure != "":
		return wire.JoinFailed{Text: r.failure}
	}
	return wire.JoinFailed{Text: "it was away for long, and the world has gone on without it"}
}

// anew begins another world. No epoch and no node of those before is in it.
func (r *record) anew() error {
	if r.begun && r.view.Size() > 0 {
		gone := membership.Entry{Kind: membership.Fail}
		for _, n := range r.view.Nodes {
			gone.IDs = append(gone.IDs, n.ID)
		}
		if _, err := r.state.Apply(gone); err != nil {
			return err
		}
	}
	r.view, r.begun, r.formed, r.over, r.overTerm, r.failure = membership.View{}, false, false, false, 0, ""
	return nil
}

// A snapshot is a record as JSON.
type snapshot struct {
	Authority []byte
	View      membership.View
	Used      []membership.NodeID
	Begun     bool
	Formed    bool
	Over      bool
	OverTerm  uint64                          `json:",omitempty"`
	Failure   string                          `json:",omitempty"`
	Gone      map[membership.NodeID]departure `json:",omitempty"`
}

func (r *record) marshal() ([]byte, error) {
	s := snapshot{
		View: r.state.View(), Used: r.state.Used(), Begun: r.begun, Formed: r.formed, Over: r.over,
		OverTerm: r.overTerm, Failure: r.failure, Gone: r.gone,
	}
	if r.authority != nil {
		var err error
		if s.Authority, err = r.authority.Marshal(); err != nil {
			return nil, err
		}
	}
	return json.Marshal(s)
}

func parseRecord(b []byte) (r record, err error) {
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
	if s.Begun {
		r.view = r.state.View()
	}
	r.begun, r.formed, r.over, r.overTerm, r.failure, r.gone = s.Begun, s.Formed, s.Over, s.OverTerm, s.Failure, s.Gone
	return r, nil
}
