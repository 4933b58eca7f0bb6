package exec

import "github.com/nexar-go/nexar/internal/plan"

// Uneven has the lengths of blocks that differ, in elements. It must not be changed
// while a call uses it.
type Uneven struct {
	// Starts has the start of each block of Data, and the end of the last one.
	Starts []int
	// Inputs is the same for Input; nil means that its blocks are as long as those
	// of Data.
	Inputs []int
	// Longest is the length of the longest block on any rank.
	Longest int
}

// of returns the starts of the blocks of a buffer.
func (u *Uneven) of(b plan.Buf) []int {
	if b == plan.Input && u.Inputs != nil {
		return u.Inputs
	}
	return u.Starts
}
