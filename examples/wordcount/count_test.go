package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// TestCount: any number of ranks counts as one does alone.
func TestCount(t *testing.T) {
	lines := strings.Split(poem, "\n")
	serial := make(map[string]int)
	for text := range wordsOf(lines) {
		serial[text]++
	}
	want := sorted([]map[string]int{serial})
	if len(want) != 91 || want[0] != (word{"the", 19}) {
		t.Fatalf("%d words, first %v", len(want), want[0])
	}
	for _, ranks := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			nexartest.Run(t, ranks, func(t *testing.T, c *nexar.Comm) {
				var own []string
				if c.Rank() == 0 {
					own = lines
				}
				got, err := count(t.Context(), c, own)
				if err != nil {
					t.Fatal(err)
				}
				if c.Rank() == 0 && !slices.Equal(got, want) || c.Rank() > 0 && got != nil {
					t.Errorf("got %v, want %v", got, want)
				}
			})
		})
	}
}
