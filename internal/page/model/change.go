package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// changes returns the history of the world, the newest change first, by the clock of this process.
func changes(c *trace.Cluster, now time.Time) []Change {
	apart := now.Sub(c.SeedTime).Truncate(time.Second)
	if apart.Abs() <= 2*time.Second || c.SeedTime.IsZero() { // the time of the answer
		apart = 0
	}
	list := make([]Change, 0, len(c.Changes))
	for i := range slices.Backward(c.Changes) {
		of := &c.Changes[i]
		words, level := describe(of)
		list = append(list, Change{Time: of.Time.Add(apart), Epoch: of.Epoch, Words: words, Level: level})
	}
	return list
}

// describe returns a sentence for a change, and its level.
func describe(c *trace.Change) (words string, level Level) {
	who := fmt.Sprintf("Rank %d", c.Rank)
	if c.Name != "" {
		who += " (" + c.Name + ")"
	}
	if c.More > 0 {
		who += fmt.Sprintf(" and %d more", c.More)
	}
	why, remain := "", fmt.Sprintf("; %s", count(c.Size))
	if c.Why != "" {
		why = ": " + c.Why
	}
	switch c.What {
	case trace.Formed:
		return "The world has formed" + remain, Calm
	case trace.Joined:
		return who + " joined" + remain, Calm
	case trace.Left:
		return who + " left" + why + remain, Calm
	case trace.Lost:
		return who + " was lost" + why + remain, Broken
	case trace.Excluded:
		return who + " was excluded by the others" + why + remain, Broken
	case trace.Over:
		return "The world is over" + why, Broken
	}
	return cmp.Or(c.What, "A change") + why, Calm
}

func count(ranks int) string {
	if ranks == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", ranks)
}
