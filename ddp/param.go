package ddp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unsafe"

	"github.com/nexar-go/nexar"
)

// Float contains the types of parameters. Parameters of a type of 16 bits of another package become one of these by [nexar.View].
type Float interface {
	~float32 | ~float64 | nexar.Float16 | nexar.BFloat16
}

// A Param is a parameter of a model: a tensor, as a flat vector.
type Param[T Float] struct {
	Name string
	Data []T // the values
	Grad []T // the gradient, of the same length; the program sets it
}

// ErrParams says that the parameters are not valid, or differ between ranks.
var ErrParams = errors.New("ddp: invalid parameters")

// A DifferenceError names the first difference between ranks: in their configurations, or in a parameter. It is an [ErrParams].
type DifferenceError struct {
	What string
	// Texts describes the configuration or parameter of each rank, such as "w" with 64 elements.
	Texts []string
}

// Error names the ranks that differ from most others.
func (e *DifferenceError) Error() string {
	usual, ranks := e.usual()
	var b strings.Builder
	fmt.Fprintf(&b, "ddp: %s differs between ranks: %s", e.What, usual)
	for i, rank := range ranks {
		if i == namedMax {
			fmt.Fprintf(&b, ", and others on %d more", len(ranks)-i)
			break
		}
		fmt.Fprintf(&b, ", but %s on rank %d", e.Texts[rank], rank)
	}
	return b.String()
}

// Is reports whether target is ErrParams.
func (e *DifferenceError) Is(target error) bool { return target == ErrParams }

// namedMax is the number of ranks that a message names.
const namedMax = 4

// usual returns the most frequent text, the first one of several, and the ranks with others.
func (e *DifferenceError) usual() (text string, others []int) {
	count := make(map[string]int)
	for _, t := range e.Texts {
		if count[t]++; count[t] > count[text] {
			text = t
		}
	}
	for _, t := range e.Texts { // ties: that of the first rank
		if count[t] == count[text] {
			text = t
			break
		}
	}
	for rank, t := range e.Texts {
		if t != text {
			others = append(others, rank)
		}
	}
	return text, others
}

// checkParams returns an error for parameters that no rank may have.
func checkParams[T Float](params []Param[T]) error {
	if len(params) == 0 {
		return fmt.Errorf("%w: none, want at least one", ErrParams)
	}
	for i, p := range params {
		if len(p.Data) != len(p.Grad) {
			return fmt.Errorf("%w: parameter %d, %q, has %d values and a gradient of %d elements, want as many", ErrParams, i, p.Name, len(p.Data), len(p.Grad))
		}
	}
	return nil
}

// A trait is a property that ranks compare, as a hash, and its description.
type trait struct {
	hash uint64
	text string
}

// shape is the trait of the name and the length.
func (p *Param[T]) shape() trait {
	text := fmt.Sprintf("%q with %d elements of %d bytes", p.Name, len(p.Data), unsafe.Sizeof(*new(T)))
	return trait{hashOf([]byte(text)), text}
}

// content is the trait of the values.
func (p *Param[T]) content() trait {
	h := hashOf(bytesOf(p.Data))
	return trait{h, fmt.Sprintf("%q with values of hash %016x", p.Name, h)}
}

// differs reports whether not all are equal.
func differs[T comparable](list []T) bool {
	return slices.ContainsFunc(list, func(x T) bool { return x != list[0] })
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return h.Sum64()
}

// bytesOf returns the memory of s.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// agree returns a DifferenceError on all ranks unless they have the same traits. The function what names a trait.
func agree(ctx context.Context, c *nexar.Comm, own []trait, what func(i int) string) error {
	var joined []byte
	for _, t := range own {
		joined = binary.LittleEndian.AppendUint64(joined, t.hash)
	}
	digests, err := nexar.AllGatherOne(ctx, c, [2]uint64{hashOf(joined), uint64(len(own))})
	if err != nil {
		return err
	}
	if !differs(digests) {
		return nil
	}
	index, err := firstDifference(ctx, c, own, digests)
	if err != nil {
		return err
	}
	text := "none"
	if index < len(own) {
		text = own[index].text
	}
	texts, err := gatherTexts(ctx, c, text)
	if err != nil {
		return err
	}
	return &DifferenceError{What: what(index), Texts: texts}
}

// firstDifference returns the index of the first trait that differs, given the numbers of traits of all ranks.
func firstDifference(ctx context.Context, c *nexar.Comm, own []trait, digests [][2]uint64) (int, error) {
	fewest := len(own)
	for _, d := range digests {
		fewest = int(min(uint64(fewest), d[1]))
	}
	low, high := make([]uint64, fewest), make([]uint64, fewest)
	for i := range low {
		low[i], high[i] = own[i].hash, own[i].hash
	}
	if err := nexar.AllReduce(ctx, c, low, nexar.Min); err != nil {
		return 0, err
	}
	if err := nexar.AllReduce(ctx, c, high, nexar.Max); err != nil {
		return 0, err
	}
	for i := range low {
		if low[i] != high[i] {
			return i, nil
		}
	}
	return fewest, nil
}

// textMax bounds the texts of an error.
const textMax = 256

// gatherTexts returns the texts of all ranks.
func gatherTexts(ctx context.Context, c *nexar.Comm, own string) ([]string, error) {
	own = own[:min(len(own), textMax)]
	lengths, err := nexar.AllGatherOne(ctx, c, int64(len(own)))
	if err != nil {
		return nil, err
	}
	counts := make([]int, len(lengths))
	total := 0
	for i, n := range lengths {
		if n < 0 || n > textMax {
			return nil, fmt.Errorf("ddp: rank %d announced a text of %d bytes, want at most %d", i, n, textMax)
		}
		counts[i] = int(n)
		total += int(n)
	}
	all := make([]byte, total)
	if err := nexar.AllGatherV(ctx, c, all, []byte(own), counts); err != nil {
		return nil, err
	}
	texts := make([]string, len(counts))
	for i, n := range counts {
		texts[i], all = string(all[:n]), all[n:]
	}
	return texts, nil
}
