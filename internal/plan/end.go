package plan

import (
	"fmt"
	"strings"
)

// checkEnd checks that every rank has the required result.
func (p *proof) checkEnd() error {
	for rank := range p.plans {
		// checkForm has checked that the rest of Data is not written.
		result := p.extent(rank).result
		if p.Empty() {
			if err := p.checkHeard(rank); err != nil {
				return err
			}
			continue
		}
		for i := result.Lo; i < result.Hi; i++ {
			if err := p.checkChunk(rank, i); err != nil {
				return fmt.Errorf("at the end %v of rank %d %w", one(Data, i), rank, err)
			}
		}
	}
	return nil
}

// checkHeard checks that a rank ends a barrier after all have begun.
func (p *proof) checkHeard(rank int) error {
	ranks := make([]bool, len(p.plans))
	ranks[rank] = true
	p.exprs.reach(p.heard[rank], make(map[expr]bool), ranks)
	for other, heard := range ranks {
		if !heard {
			return fmt.Errorf("rank %d may end before rank %d has begun", rank, other)
		}
	}
	return nil
}

// checkChunk checks one chunk of the result.
func (p *proof) checkChunk(rank, chunk int) error {
	got := p.data[rank][chunk]
	if p.From != nil {
		return p.checkInput(got, rank, chunk)
	}
	if rank > 0 && p.sameEverywhere() {
		if first := p.data[0][chunk]; got != first {
			return fmt.Errorf("is %s, but at rank 0 %s", p.describe(got), p.describe(first))
		}
		return nil
	}
	ordered, err := p.exprs.sum(got, chunk, p.Operands.Count(rank, len(p.plans)))
	if err == nil && !ordered && p.Operands.Prefix() {
		err = fmt.Errorf("is %s, which is not in the order of the ranks", p.describe(got))
	}
	p.ordered = p.ordered && ordered
	return err
}

// checkInput checks that a chunk holds the input that the collective moves there.
func (p *proof) checkInput(got expr, rank, chunk int) error {
	from, at := p.From(rank, len(p.plans), p.root, chunk)
	if got == p.exprs.leaf(from, at) {
		return nil
	}
	return fmt.Errorf("is %s instead of chunk %d of rank %d", p.describe(got), at, from)
}

// describe returns an expression as text.
func (p *proof) describe(e expr) string {
	if e == none {
		return "nothing"
	}
	if e <= p.exprs.inputs {
		rank, chunk := p.exprs.origin(e)
		return fmt.Sprintf("chunk %d of rank %d", chunk, rank)
	}
	if n := p.exprs.count(e); n > 64 {
		return fmt.Sprintf("a sum of %d inputs", n)
	}
	var text strings.Builder
	p.exprs.text(e, &text)
	return "the sum " + text.String()
}

// Expression returns the order of combining the inputs of all ranks, if it is the same for
// every chunk: "((0 1) 2)" adds ranks 0 and 1, and then 2 on the right. It is empty if chunks
// differ, or if nothing is reduced over all ranks.
func Expression(c Collective, root int, plans []Plan) (string, error) {
	p, err := prove(c, root, plans, make([]bool, len(plans)))
	if err != nil || c.Descriptor().Operands != AllRanks {
		return "", err
	}
	common := ""
	for rank := range plans {
		result := p.extent(rank).result
		for i := result.Lo; i < result.Hi; i++ {
			var text strings.Builder
			p.exprs.text(p.data[rank][i], &text)
			if common != "" && common != text.String() {
				return "", nil
			}
			common = text.String()
		}
	}
	return common, nil
}
