package mesh

import (
	"strings"
	"testing"
)

func TestRefusedTopology(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "full": "", "full_mesh": "", "k_regular:3": "not supported yet", "k_regular:x": "not one of full", "hypercube": "not supported yet", "k-regular:3": "not supported yet", "k-regular:0": "not one of full",
		"k-regular": "not one of full", "ring": "not one of full", "full:2": "not one of full",
	} {
		if got := RefusedTopology(name); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
