package mesh

import (
	"strconv"
	"strings"
)

// RefusedTopology returns the reason why a topology is not supported, or "" if it is.
func RefusedTopology(name string) string {
	kind, k, _ := strings.Cut(name, ":")
	degree, err := strconv.Atoi(k)
	switch {
	case name == "" || name == "full" || name == "full_mesh":
		return ""
	case name == "hypercube", (kind == "k-regular" || kind == "k_regular") && err == nil && degree > 0:
		return "this topology is not supported yet: use \"full\", which connects every node to all others"
	}
	return "not one of full, k-regular:K (with K at least 1), hypercube"
}
