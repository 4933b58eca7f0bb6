package main

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"unicode"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/objects"
)

// A word is a word and the number of times that it occurs.
type word struct {
	Text  string
	Count int
}

// count counts the words of the lines of rank 0. It returns them on rank 0, the most frequent first, and nil on other ranks.
func count(ctx context.Context, c *nexar.Comm, lines []string) ([]word, error) {
	var parts [][]string // of the lines, one for each rank
	if c.Rank() == 0 {
		for _, n := range nexar.Shares(len(lines), c.Size()) {
			parts, lines = append(parts, lines[:n]), lines[n:]
		}
	}
	part, err := objects.Scatter(ctx, c, parts, 0)
	if err != nil {
		return nil, err
	}

	// Each word belongs to a rank, which adds the counts of all ranks.
	counts := make([]map[string]int, c.Size())
	for r := range counts {
		counts[r] = make(map[string]int)
	}
	for text := range wordsOf(part) {
		counts[owner(text, c.Size())][text]++
	}
	received, err := objects.AllToAll(ctx, c, counts)
	if err != nil {
		return nil, err
	}
	own := make(map[string]int)
	for _, counts := range received {
		for text, n := range counts {
			own[text] += n
		}
	}

	all, err := objects.Gather(ctx, c, own, 0)
	if err != nil {
		return nil, err
	}
	return sorted(all), nil
}

// wordsOf yields the words of lines, in lower case.
func wordsOf(lines []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, line := range lines {
			for text := range strings.FieldsFuncSeq(strings.ToLower(line), func(r rune) bool { return !unicode.IsLetter(r) }) {
				if !yield(text) {
					return
				}
			}
		}
	}
}

// owner returns the rank to which a word belongs.
func owner(text string, size int) int {
	h := fnv.New32a()
	h.Write([]byte(text))
	return int(h.Sum32() % uint32(size))
}

// sorted returns the words of counts that have none in common, the most frequent first.
func sorted(all []map[string]int) (words []word) {
	for _, counts := range all {
		for text, n := range counts {
			words = append(words, word{text, n})
		}
	}
	slices.SortFunc(words, func(a, b word) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Text, b.Text))
	})
	return words
}
