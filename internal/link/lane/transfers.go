package lane

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/wire"
)

// A Transfer is a payload for a grant of the peer.
type Transfer struct {
	Of any // for the caller

	grant uint64
	size  int
	sent  int // bytes that the current connection was given, or that the peer had when it opened
	begun int // the end of all bytes that a connection was given
}

// Size returns the length of the payload.
func (t *Transfer) Size() int { return t.size }

// Sent returns the offset of the next segment.
func (t *Transfer) Sent() int { return t.sent }

// Transfers are the payloads of one side that are not delivered, for grants of the peer.
type Transfers struct {
	last uint64      // the largest grant of all transfers
	open []*Transfer // by their grants, ascending
}

// Start adds a transfer of size bytes for a grant that the peer has announced.
func (s *Transfers) Start(t *Transfer, grant uint64, size int) error {
	i, found := s.index(grant)
	if found || grant == 0 {
		return fmt.Errorf("lane: the peer announces grant %d again", grant)
	}
	t.grant, t.size, t.sent, t.begun = grant, size, 0, 0
	s.open, s.last = slices.Insert(s.open, i, t), max(s.last, grant)
	return nil
}

// Next returns the next segment of a transfer, of at most most bytes. The caller writes it on the pipe of the transfer and calls
// Wrote. At the end of the payload the segment is empty; a payload of no bytes is one empty segment.
func (t *Transfer) Next(most int) (offset, n int) {
	n = min(most, t.size-t.sent)
	t.begun = max(t.begun, t.sent+n) // The peer may have the bytes before the write returns.
	return t.sent, n
}

// Wrote notes that the current connection has taken a segment of n bytes.
func (t *Transfer) Wrote(n int) { t.sent += n }

// Recall removes a transfer: no segment follows, and the peer withdraws the grant by itself. It reports whether the transfer
// was still there.
func (s *Transfers) Recall(t *Transfer) (was bool) {
	i, ok := s.index(t.grant)
	if was = ok && s.open[i] == t; was {
		s.open = slices.Delete(s.open, i, i+1)
	}
	return was
}

// Finished handles the report of the peer that a grant is filled or withdrawn. It returns the transfer, which is delivered, or
// nil if it was recalled or delivered before: the peer reports a withdrawn grant for each segment. If the grant was withdrawn, the caller may be
// writing a segment.
func (s *Transfers) Finished(grant uint64) (*Transfer, error) {
	if grant == 0 || grant > s.last {
		return nil, fmt.Errorf("lane: the peer has finished grant %d, and the last one used is %d", grant, s.last)
	}
	i, ok := s.index(grant)
	if !ok {
		return nil, nil
	}
	t := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	return t, nil
}

// Resume goes on with all transfers on a new connection, for which the peer has stated r. It returns the transfers that are
// delivered: their grants have been made and are not listed. Other transfers go on where the peer is, before or after Sent. A grant
// in the list without a transfer was recalled, or its announcement has not been handled yet.
//
// No writer of an earlier connection may use the payloads any more.
func (s *Transfers) Resume(r *wire.Resume) (delivered []*Transfer, err error) {
	if err := checkGrants(r); err != nil {
		return nil, err
	}
	list := r.Grants
	for _, t := range s.open {
		i, ok := slices.BinarySearchFunc(list, t.grant, func(p wire.Progress, id uint64) int { return cmp.Compare(p.Grant, id) })
		if ok && list[i].Got > uint64(t.begun) {
			return nil, fmt.Errorf("lane: the peer has %d bytes for grant %d, and %d were sent", list[i].Got, t.grant, t.begun)
		}
	}
	s.open = slices.DeleteFunc(s.open, func(t *Transfer) bool {
		i, ok := slices.BinarySearchFunc(list, t.grant, func(p wire.Progress, id uint64) int { return cmp.Compare(p.Grant, id) })
		switch {
		case ok:
			t.sent = int(list[i].Got)
		case t.grant <= r.Last:
			delivered = append(delivered, t)
			return true
		default: // The grant was made after the peer had stated its numbers.
			t.sent = 0
		}
		return false
	})
	return delivered, nil
}

// All returns the transfers that are not delivered. The caller does not change the list.
func (s *Transfers) All() []*Transfer { return s.open }

func (s *Transfers) index(grant uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(s.open, grant, func(t *Transfer, grant uint64) int { return cmp.Compare(t.grant, grant) })
}

// checkGrants returns an error if the list of grants is not one.
func checkGrants(r *wire.Resume) error {
	before := uint64(0)
	for _, p := range r.Grants {
		if p.Grant <= before || p.Grant > r.Last {
			return fmt.Errorf("lane: an opening with grant %d after grant %d, and %d as the last", p.Grant, before, r.Last)
		}
		before = p.Grant
	}
	return nil
}
