package settings

import (
	"slices"
	"testing"
)

func TestUnknown(t *testing.T) {
	environ := []string{"S_ZONE_OF_MINE=1", "S_RNAK=2", "S_RANK=1", "OTHER=3", "S_SEED="}
	want := []UnknownVariable{{"S_RNAK", "did you mean S_RANK?"}, {"S_ZONE_OF_MINE", "nobody reads it: unset it"}}
	if got := Unknown(environ, "S_", []string{"S_SEEDS", "S_RANK"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"S_SEEDS", "S_CLUSTER_TOKEN", "S_RANK", "S_FORM_TIMEOUT_SECS"}
	for written, want := range map[string]string{
		"S_SEED": "S_SEEDS", "S_TOKEN": "S_CLUSTER_TOKEN", "S_CLUSTER_TOKENS": "S_CLUSTER_TOKEN", "S_RNAK": "S_RANK",
		"S_FORM_TIMEOUT": "S_FORM_TIMEOUT_SECS", "S_OF_SOMEBODY_ELSES": "",
	} {
		if got := Nearest(written, "S_", names); got != want {
			t.Errorf("%s: got %q, want %q", written, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"same", "same", 0}, {"ab", "ba", 2}} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.b, test.a, got, test.want)
		}
	}
}
