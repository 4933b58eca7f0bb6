package plan

import "math/bits"

// RecursiveMultiplyingAllReduce leaves the reduction of all vectors on every rank in ⌈log4 n⌉ rounds
// of three messages, and two more if n is not a power of two. It is recursive doubling with radix
// four: a rank exchanges whole vectors with three others at once. It is for short vectors, where a
// latency takes longer than the overhead of a message, and has scratch of up to eight vectors.
//
// It is canonical: the vectors of a round are combined along the tree of merges.
//
// Ruefenacht, Bull and Booth, "Generalisation of recursive doubling for AllReduce: Now with
// simulation", Parallel Computing 69, 2017.
func RecursiveMultiplyingAllReduce(size, _ int) Rounds {
	f := foldOf(size)
	radixSteps := radixStepsOf(f.members)
	length := 2
	for _, e := range radixSteps {
		length += 1 + e.width
	}
	return Rounds{Chunks: 1, length: sameLen(length), moves: func(to Round, rank, k int) Round {
		paired, data := f.paired(rank), one(Data, 0)
		switch last := length - 1; {
		case paired && rank%2 == 1:
			switch k {
			case 0:
				return append(to, send(data, rank-1))
			case last:
				return append(to, recv(data, rank-1))
			}
			return to
		case k == 0 && paired:
			return append(to, reduce(data, data, rank+1))
		case k == last && paired:
			return append(to, send(data, rank+1))
		case k == 0 || k == last:
			return to
		}
		k--
		for i, e := range radixSteps {
			if k > e.width {
				k -= 1 + e.width
				continue
			}
			e.own = f.member(rank) >> e.bit & (1<<e.width - 1)
			if k == 0 {
				return e.messages(to, f, rank)
			}
			return e.combine(to, k-1, i == len(radixSteps)-1)
		}
		return to
	}}
}

// radixBits is the number of bits of the radix of recursive multiplying.
const radixBits = 2

// A radixStep is one exchange of recursive multiplying: members that differ in width bits, from bit on,
// exchange their sums. Their numbers in the exchange are these bits.
type radixStep struct {
	bit, width int
	sum        Span // before the exchange
	sums       int  // in Temp, the chunk of the sum of number 0
	own        int  // number of this member
}

// radixStepsOf returns the steps of all members, without own. The first may have a smaller radix.
func radixStepsOf(members int) (list []radixStep) {
	sum, steps := one(Data, 0), bits.Len(uint(members))-1
	for bit := 0; bit < steps; {
		width := radixBits
		if rest := steps % radixBits; bit == 0 && rest > 0 {
			width = rest
		}
		// Received sums must not replace those that are sent.
		sums := len(list) % 2 << radixBits
		list = append(list, radixStep{bit: bit, width: width, sum: sum, sums: sums})
		sum = one(Temp, sums)
		bit += width
	}
	return list
}

// sumOf returns the location of the sum of a number, before the level-th combination of sums.
func (e *radixStep) sumOf(number, level int) Span {
	if number == e.own && level == 0 {
		return e.sum
	}
	return one(Temp, e.sums+number)
}

// messages appends the messages with the other members.
func (e *radixStep) messages(to Round, f fold, rank int) Round {
	for k := 1; k < 1<<e.width; k++ {
		number := e.own ^ k
		peer := f.first(f.member(rank) ^ k<<e.bit)
		to = append(to, send(e.sum, peer), recv(e.sumOf(number, 0), peer))
	}
	return to
}

// combine appends the combinations of a level of the tree. In the last exchange the last of them
// leaves the sum in Data.
func (e *radixStep) combine(to Round, level int, last bool) Round {
	for number := 0; number < 1<<e.width; number += 2 << level {
		sum := one(Temp, e.sums+number)
		if last && level == e.width-1 {
			sum = one(Data, 0)
		}
		to = append(to, combine(sum, e.sumOf(number, level), e.sumOf(number+1<<level, level)))
	}
	return to
}
