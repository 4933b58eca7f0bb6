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
		return "this topology is not built yet: every node is connected to all others, which is \"full\""
	}
	return "not one of full, k-regular:K (with K from 1 on), hypercube"
}
