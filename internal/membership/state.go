package membership

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A Kind is the kind of an Entry.
type Kind uint8

const (
	Form  Kind = iota + 1 // Nodes are the world, ordered by rank; the previous view is empty
	Join                  // Nodes get the next ranks, in this order
	Leave                 // IDs leave by a goodbye
	Fail                  // IDs have failed
	Renew                 // the epoch grows, and the nodes stay
)

func (k Kind) String() string {
	names := [...]string{Form: "form", Join: "join", Leave: "leave", Fail: "fail", Renew: "renew"}
	if k < Form || k > Renew {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return names[k]
}

// An Entry is one change of the membership in the log.
type Entry struct {
	Kind  Kind
	Nodes []Node   // of Form and Join
	IDs   []NodeID // of Leave and Fail
}

// Errors of State.Apply. Test for them with errors.Is.
var (
	ErrNotFormed = errors.New("the world has not formed")
	ErrFormed    = errors.New("the world has formed already")
	ErrReused    = errors.New("this node ID was used before")
	ErrUnknown   = errors.New("no such node in the view")
	ErrAddress   = errors.New("no address at which others can dial the node")
)

// A State is the membership after some entries of the log. The zero State is empty.
// Entries applied in the same order give the same views everywhere.
type State struct {
	view View
	used map[NodeID]bool // all nodes that have ever been in a view
}

// RestoreState returns the State with the given results of View and Used.
func RestoreState(v View, used []NodeID) (s State, err error) {
	if err := v.Check(); err != nil {
		return s, err
	}
	s = State{view: v.clone(), used: make(map[NodeID]bool, len(used))}
	for _, id := range used {
		s.used[id] = true
	}
	for _, n := range v.Nodes {
		s.used[n.ID] = true
	}
	return s, nil
}

// Used returns all nodes that have ever been in a view, in a deterministic order.
func (s *State) Used() []NodeID {
	return slices.SortedFunc(maps.Keys(s.used), func(a, b NodeID) int { return bytes.Compare(a[:], b[:]) })
}

// Knows reports whether a node has ever been in a view.
func (s *State) Knows(id NodeID) bool { return s.used[id] }

// View returns the newest view. Before the Form entry it is empty, with epoch 0.
func (s *State) View() View { return s.view.clone() }

// Apply applies an entry and returns the resulting view with the next epoch. The nodes that
// stay keep their order. An invalid entry is an error, and changes nothing.
func (s *State) Apply(e Entry) (View, error) {
	if err := s.check(e); err != nil {
		return View{}, fmt.Errorf("%v: %w", e.Kind, err)
	}
	next := s.view.without(func(id NodeID) bool { return slices.Contains(e.IDs, id) })
	next.Epoch++
	if s.used == nil {
		s.used = make(map[NodeID]bool, len(e.Nodes))
	}
	for _, n := range e.Nodes {
		s.used[n.ID] = true
		next.Nodes = append(next.Nodes, n)
	}
	s.view = next.clone()
	return s.view.clone(), nil
}

// ApplyAll applies several entries, and returns the view after the last one. The views
// in between are never distributed.
func (s *State) ApplyAll(entries []Entry) (v View, err error) {
	for _, e := range entries {
		if v, err = s.Apply(e); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (s *State) check(e Entry) error {
	adds, removes := e.Kind == Form || e.Kind == Join, e.Kind == Leave || e.Kind == Fail
	switch {
	case !adds && !removes && e.Kind != Renew:
		return fmt.Errorf("entry of unknown kind %d", e.Kind)
	case e.Kind == Form && s.view.Size() > 0:
		return ErrFormed
	case e.Kind != Form && s.view.Epoch == 0:
		return ErrNotFormed
	case adds != (len(e.Nodes) > 0) || removes != (len(e.IDs) > 0):
		return fmt.Errorf("%d nodes and %d ids: form and join must have nodes, leave and fail ids", len(e.Nodes), len(e.IDs))
	}
	seen := make(map[NodeID]bool, len(e.Nodes)+len(e.IDs))
	for _, n := range e.Nodes {
		if s.used[n.ID] || seen[n.ID] {
			return fmt.Errorf("node %v: %w", n.ID, ErrReused)
		}
		seen[n.ID] = true
		if err := checkNode(n); err != nil {
			return err
		}
	}
	for _, id := range e.IDs {
		if !s.view.has(id) || seen[id] {
			return fmt.Errorf("node %v: %w", id, ErrUnknown)
		}
		seen[id] = true
	}
	return nil
}

// checkNode returns an error for a node without a usable address.
func checkNode(n Node) error {
	if len(n.Addrs) == 0 {
		return fmt.Errorf("%v: %w", n, ErrAddress)
	}
	for _, a := range n.Addrs {
		if a == "" {
			return fmt.Errorf("%v: empty address: %w", n, ErrAddress)
		}
	}
	return nil
}
