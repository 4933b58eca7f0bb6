package simulate

import (
	"fmt"
	"strconv"
	"strings"
)

// Topologies returns an example of each form of [Model].Topology.
func Topologies() []string { return []string{"flat", "fat-tree:32:4", "torus:16x16x8"} }

func parseTopology(text string) (topology, error) {
	bad := func(problem string) (topology, error) {
		return topology{}, fmt.Errorf("%w: topology %q: %s: want a form such as %s", ErrInvalid, text, problem, strings.Join(Topologies(), ", "))
	}
	name, rest, _ := strings.Cut(text, ":")
	switch name {
	case "", "flat":
		if rest != "" {
			return bad("flat has no parameters")
		}
		return topology{}, nil
	case "fat-tree":
		hosts, over, _ := strings.Cut(rest, ":")
		perLeaf, err := strconv.Atoi(hosts)
		if err != nil || perLeaf < 1 {
			return bad(fmt.Sprintf("%q is no number of hosts at a leaf", hosts))
		}
		ratio := 1.0
		if over != "" {
			if ratio, err = strconv.ParseFloat(over, 64); err != nil || !(ratio >= 1 && ratio <= float64(perLeaf)) {
				return bad(fmt.Sprintf("%q is no oversubscription between 1 and %d", over, perLeaf))
			}
		}
		return topology{shape: fatTree, hostsPerLeaf: perLeaf, oversubscription: ratio}, nil
	case "torus":
		t := topology{shape: torus}
		for d := range strings.SplitSeq(rest, "x") {
			n, err := strconv.Atoi(d)
			if err != nil || n < 1 {
				return bad(fmt.Sprintf("%q is no number of hosts in a dimension", d))
			}
			t.dimensions = append(t.dimensions, n)
		}
		return t, nil
	}
	return bad("unknown name")
}
