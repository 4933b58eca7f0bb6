package plan

import (
	"errors"
	"fmt"
	"strings"
)

// An expr is an expression over the inputs of all ranks. Two expressions are equal if and only
// if their numbers are: same operands, same order, same parentheses.
type expr int32

// none is the expression of an unwritten chunk.
const none expr = 0

// exprs contains all expressions of a proof. Numbers from 1 are the inputs, rank by rank and
// chunk by chunk; higher ones are the results of the op.
type exprs struct {
	size, chunks int
	inputs       expr // the number of inputs
	ops          []op
	known        map[[2]expr]expr
}

// An op is the result of one application, and the number of inputs in it.
type op struct {
	left, right expr
	inputs      int32
}

func newExprs(size, chunks int, reduces bool) exprs {
	x := exprs{size: size, chunks: chunks, inputs: expr(size * chunks)}
	if reduces {
		// Most plans compute each partial sum of each chunk once.
		x.ops = make([]op, 0, size*chunks)
		x.known = make(map[[2]expr]expr, size*chunks)
	} else {
		x.known = make(map[[2]expr]expr)
	}
	return x
}

// leaf returns the input of a rank.
func (x *exprs) leaf(rank, chunk int) expr { return expr(rank*x.chunks + chunk + 1) }

// origin returns the rank and the chunk of an input.
func (x *exprs) origin(leaf expr) (rank, chunk int) {
	return int(leaf-1) / x.chunks, int(leaf-1) % x.chunks
}

// join returns left op right, or right if left is none.
func (x *exprs) join(left, right expr) expr {
	if left == none {
		return right
	}
	key := [2]expr{left, right}
	if e, ok := x.known[key]; ok {
		return e
	}
	x.ops = append(x.ops, op{left, right, x.count(left) + x.count(right)})
	e := x.inputs + expr(len(x.ops))
	x.known[key] = e
	return e
}

// count returns the number of inputs in an expression. It stops far above the number in a
// correct all-reduce.
func (x *exprs) count(e expr) int32 {
	if e <= x.inputs {
		return 1
	}
	return min(x.ops[e-x.inputs-1].inputs, 1<<20)
}

// leaves appends the inputs of an expression, from left to right.
func (x *exprs) leaves(e expr, to []expr) []expr {
	if e <= x.inputs {
		return append(to, e)
	}
	o := x.ops[e-x.inputs-1]
	return x.leaves(o.right, x.leaves(o.left, to))
}

// reach marks the ranks with inputs in an expression. It skips expressions in seen.
func (x *exprs) reach(e expr, seen map[expr]bool, ranks []bool) {
	if e == none || seen[e] {
		return
	}
	seen[e] = true
	if e <= x.inputs {
		rank, _ := x.origin(e)
		ranks[rank] = true
		return
	}
	o := x.ops[e-x.inputs-1]
	x.reach(o.left, seen, ranks)
	x.reach(o.right, seen, ranks)
}

// text writes an expression with the ranks of its inputs: "((0 1) 2)".
func (x *exprs) text(e expr, to *strings.Builder) {
	if e <= x.inputs {
		rank, _ := x.origin(e)
		fmt.Fprint(to, rank)
		return
	}
	o := x.ops[e-x.inputs-1]
	to.WriteByte('(')
	x.text(o.left, to)
	to.WriteByte(' ')
	x.text(o.right, to)
	to.WriteByte(')')
}

// sum returns an error if an expression is not the reduction of a chunk over the first ranks,
// each once. Ordered reports whether the ranks are in order.
func (x *exprs) sum(e expr, chunk, ranks int) (ordered bool, err error) {
	if e == none {
		return false, errors.New("holds nothing")
	}
	if n := x.count(e); int(n) > 4*ranks+4 {
		return false, fmt.Errorf("holds %d inputs or more instead of %d", n, ranks)
	}
	ordered = true
	times := make([]int, x.size)
	for i, leaf := range x.leaves(e, nil) {
		rank, from := x.origin(leaf)
		if from != chunk {
			return false, fmt.Errorf("holds chunk %d of rank %d", from, rank)
		}
		times[rank]++
		ordered = ordered && rank == i
	}
	for rank, n := range times {
		want := 0
		if rank < ranks {
			want = 1
		}
		if n != want {
			return false, fmt.Errorf("holds the input of rank %d %d times instead of %d", rank, n, want)
		}
	}
	return ordered, nil
}
