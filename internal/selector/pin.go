package selector

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Pin fixes the algorithm of a collective.
type Pin struct {
	Index    int // in plan.AlgorithmsOn
	Channels int // over links; 0 leaves the executor and their number to the model
}

// ParsePins parses pins, at most one for each collective. See [ParsePin].
func ParsePins(list []string) (map[plan.Collective]Pin, error) {
	pins := make(map[plan.Collective]Pin)
	for _, s := range list {
		c, p, err := ParsePin(s)
		if err != nil {
			return nil, err
		}
		if _, twice := pins[c]; twice {
			return nil, fmt.Errorf("two algorithms for %v: want at most one", c)
		}
		pins[c] = p
	}
	return pins, nil
}

// Collective returns the collective with a name.
func Collective(name string) (plan.Collective, error) {
	all := plan.Collectives()
	i := slices.IndexFunc(all, func(c plan.Collective) bool { return c.String() == name })
	if i < 0 {
		return 0, fmt.Errorf("unknown collective %q: want one of %s", name, join(all, plan.Collective.String))
	}
	return all[i], nil
}

// ParsePin parses "all_reduce=ring", or "all_reduce=ring/4" with the number of channels.
func ParsePin(s string) (plan.Collective, Pin, error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return 0, Pin{}, fmt.Errorf("%q: want collective=algorithm", s)
	}
	k, err := Collective(name)
	if err != nil {
		return 0, Pin{}, err
	}
	algorithm, channels, several := strings.Cut(value, "/")
	list := plan.AlgorithmsOn(k, plan.Hosts{})
	var p Pin
	p.Index = slices.IndexFunc(list, func(a plan.Algorithm) bool { return a.Name == algorithm })
	if p.Index < 0 {
		return 0, Pin{}, fmt.Errorf("unknown algorithm %q for %s: want one of %s", algorithm, name,
			join(list, func(a plan.Algorithm) string { return a.Name }))
	}
	if several {
		n, err := strconv.Atoi(channels)
		if err != nil || n < 1 || n > cost.ChannelsMax {
			return 0, Pin{}, fmt.Errorf("%q channels: want a number from 1 to %d", channels, cost.ChannelsMax)
		}
		if list[p.Index].Shared {
			return 0, Pin{}, fmt.Errorf("%q: algorithm %s runs in shared memory, without channels", s, algorithm)
		}
		p.Channels = n
	}
	return k, p, nil
}

func join[T any](list []T, name func(T) string) string {
	names := make([]string, len(list))
	for i, v := range list {
		names[i] = name(v)
	}
	return strings.Join(names, ", ")
}

// PlanName describes the plan with a number in a fingerprint.
func PlanName(k plan.Collective, number, channels int) string {
	list := plan.AlgorithmsOn(k, plan.Hosts{})
	index, executor := number&^executorBits, exec.ID(bits.Reverse8(uint8(number&executorBits)))
	switch {
	case index >= len(list):
		return fmt.Sprintf("algorithm %d", number)
	case executor == exec.Shared:
		return list[index].Name + " in shared memory"
	case executor != exec.Links:
		return fmt.Sprintf("%s by executor %d", list[index].Name, executor)
	case channels == 1:
		return list[index].Name
	default:
		return list[index].Name + " on several channels"
	}
}
