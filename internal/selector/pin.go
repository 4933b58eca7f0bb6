package selector

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
)

// sharedPlan marks the number of a plan that runs on a board in a fingerprint.
const sharedPlan = 0x80

// A Pin fixes how a collective is carried out.
type Pin struct {
	Index    int // among plan.AlgorithmsOn
	Channels int // over links; 0 prefers a board, and leaves their number to the model
}

// ParsePins reads pins as ParsePin does, at most one for each collective.
func ParsePins(list []string) (map[plan.Collective]Pin, error) {
	pins := make(map[plan.Collective]Pin)
	for _, s := range list {
		c, p, err := ParsePin(s)
		if err != nil {
			return nil, err
		}
		if _, twice := pins[c]; twice {
			return nil, fmt.Errorf("two algorithms for %v", c)
		}
		pins[c] = p
	}
	return pins, nil
}

// Collective is the collective of a name.
func Collective(name string) (plan.Collective, error) {
	all := plan.Collectives()
	i := slices.IndexFunc(all, func(c plan.Collective) bool { return c.String() == name })
	if i < 0 {
		return 0, fmt.Errorf("there is no collective %q; there are %s", name, join(all, plan.Collective.String))
	}
	return all[i], nil
}

// ParsePin reads "all_reduce=ring" or "all_reduce=ring/4", with the number of
// channels.
func ParsePin(s string) (plan.Collective, Pin, error) {
	name, how, ok := strings.Cut(s, "=")
	if !ok {
		return 0, Pin{}, fmt.Errorf("%q is not of the form collective=algorithm", s)
	}
	k, err := Collective(name)
	if err != nil {
		return 0, Pin{}, err
	}
	algorithm, channels, several := strings.Cut(how, "/")
	list := plan.AlgorithmsOn(k, plan.Hosts{})
	var p Pin
	p.Index = slices.IndexFunc(list, func(a plan.Algorithm) bool { return a.Name == algorithm })
	if p.Index < 0 {
		return 0, Pin{}, fmt.Errorf("there is no algorithm %q for %s; there are %s", algorithm, name,
			join(list, func(a plan.Algorithm) string { return a.Name }))
	}
	if several {
		n, err := strconv.Atoi(channels)
		if err != nil || n < 1 || n > cost.ChannelsMax {
			return 0, Pin{}, fmt.Errorf("%q channels: want a number from 1 to %d", channels, cost.ChannelsMax)
		}
		if list[p.Index].Shared {
			return 0, Pin{}, fmt.Errorf("%s is for shared memory, where there are no channels", algorithm)
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

// PlanName describes the choice that a fingerprint contains.
func PlanName(k plan.Collective, index, channels int) string {
	list := plan.AlgorithmsOn(k, plan.Hosts{})
	switch at := index &^ sharedPlan; {
	case at >= len(list):
		return fmt.Sprintf("algorithm %d", index)
	case index&sharedPlan != 0:
		return list[at].Name + " in shared memory"
	case channels == 1:
		return list[at].Name
	default:
		return list[at].Name + " on several channels"
	}
}
