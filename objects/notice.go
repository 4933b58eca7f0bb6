package objects

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/nexar-go/nexar"
)

// Elements of a notice, which a rank sends to all others before its objects.
const (
	noticeCall   = iota // digest of the call
	noticeText          // length of the text that the rank tells if another rank asks
	noticeFailed        // 1 if the objects could not be encoded, and otherwise 0
	noticeLimit         // of the rank
	noticeSizes         // length of the objects together or, of an AllToAll, of each
)

// notices are those of all ranks, one after another. They may come from hostile or broken ranks.
type notices struct {
	flat  []int64
	width int
}

func (n notices) of(rank int) []int64    { return n.flat[rank*n.width:][:n.width] }
func (n notices) sizes(rank int) []int64 { return n.of(rank)[noticeSizes:] }
func (n notices) ranks() int             { return len(n.flat) / n.width }

// A verdict says whether a call goes on.
type verdict int

const (
	agreed     verdict = iota
	failed             // A rank could not encode its objects.
	mismatched         // A rank has made another call than rank 0.
	refused            // The notice of a rank is invalid, or objects are too large.
)

// judge decides from the notices alone whether the call goes on, and otherwise because of which rank or error. So all ranks come to the
// same result.
func (k *call) judge(n notices) (rank int, v verdict, err error) {
	for r := range n.ranks() {
		of := n.of(r)
		valid := of[noticeText] >= 0 && of[noticeText] <= textMax && of[noticeFailed]|1 == 1 && of[noticeLimit] > 0
		for _, size := range n.sizes(r) {
			valid = valid && size >= 0
		}
		if !valid {
			return r, refused, fmt.Errorf("rank %d has sent an invalid notice of its objects: %d", r, of)
		}
	}
	for r := range n.ranks() {
		if n.of(r)[noticeCall] != n.of(0)[noticeCall] {
			return r, mismatched, nil
		}
	}
	for r := range n.ranks() {
		if n.of(r)[noticeFailed] != 0 {
			return r, failed, nil
		}
	}
	if err := k.fits(n); err != nil {
		return 0, refused, err
	}
	return 0, agreed, nil
}

// fits returns an error if a rank would send or receive more than the limit.
func (k *call) fits(n notices) error {
	least := 0
	for r := range n.ranks() {
		if n.of(r)[noticeLimit] < n.of(least)[noticeLimit] {
			least = r
		}
	}
	limit := n.of(least)[noticeLimit]
	check := func(what, side string, count int, size func(i int) int64) error {
		sum, most := int64(0), 0
		for i := range count {
			if size(i) > size(most) {
				most = i
			}
			sum += min(size(i), math.MaxInt64-sum)
		}
		if sum <= limit {
			return nil
		}
		return fmt.Errorf("%w: %s %d bytes, %d of them %s rank %d, and the limit is %d, MaxBytes of rank %d: raise Format.MaxBytes on all ranks",
			nexar.ErrTooLarge, what, sum, size(most), side, most, limit, least)
	}
	if k.op != "all_to_all" {
		what := "the objects have"
		if !k.hasRoot() {
			what = "the objects of all ranks have"
		}
		return check(what, "of", n.ranks(), func(r int) int64 { return n.sizes(r)[0] })
	}
	for r := range n.ranks() {
		err := cmp.Or(
			check(fmt.Sprintf("rank %d would send", r), "to", n.ranks(), func(to int) int64 { return n.sizes(r)[to] }),
			check(fmt.Sprintf("rank %d would receive", r), "from", n.ranks(), func(from int) int64 { return n.sizes(from)[r] }))
		if err != nil {
			return err
		}
	}
	return nil
}

// firstLine returns the description of the call in the text of a rank.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return printable(line)
}
