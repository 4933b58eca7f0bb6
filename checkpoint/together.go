package checkpoint

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar"
)

// A RankError is the error of one rank, on all ranks.
type RankError struct {
	Rank int
	Text string
	// Err is the error on the rank itself, and nil or one of this package on others.
	Err error
}

func (e *RankError) Error() string { return fmt.Sprintf("checkpoint: rank %d: %s", e.Rank, e.Text) }

// Unwrap returns Err.
func (e *RankError) Unwrap() error { return e.Err }

// kinds are the errors that other ranks recognize.
func kinds() []error { return []error{ErrDamaged, ErrForeign, ErrNewer, ErrTaken} }

// textMax bounds the text of an error on its way.
const textMax = 2048

// together calls f on all ranks and returns the error of the first rank that has one, on all of them.
func (s *Saver) together(ctx context.Context, f func() error) error {
	own := f()
	var text []byte
	if own != nil {
		kind := byte(0)
		for i, k := range kinds() {
			if errors.Is(own, k) {
				kind = byte(i + 1)
			}
		}
		text = append([]byte{kind}, own.Error()...)
		text = text[:min(len(text), textMax)]
	}
	texts, err := s.gather(ctx, text)
	if err != nil {
		return errors.Join(own, err)
	}
	for rank, t := range texts {
		if len(t) == 0 {
			continue
		}
		e := &RankError{Rank: rank, Text: string(t[1:])}
		if k := int(t[0]); k > 0 && k <= len(kinds()) {
			e.Err = kinds()[k-1]
		}
		if rank == s.comm.Rank() {
			e.Err = own
		}
		return e
	}
	return nil
}

// gather returns the texts of all ranks.
func (s *Saver) gather(ctx context.Context, own []byte) ([][]byte, error) {
	all, counts, err := nexar.AllGatherVAlloc(ctx, s.comm, own)
	if err != nil {
		return nil, err
	}
	texts := make([][]byte, len(counts))
	for i, n := range counts {
		texts[i], all = all[:n], all[n:]
	}
	return texts, nil
}
