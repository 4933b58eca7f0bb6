package nexar

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestUnknownEnv(t *testing.T) {
	for name, want := range map[string]string{
		"NEXAR_SEEDS": "", "NEXAR_LOG": "", "NEXAR_WORLD": "", "NEXAR_LOCAL_RANK": "", "NEXAR_REQUIRE": "", "NEXAR": "", "SEEDS": "",
		"NEXAR_SEED":              "did you mean NEXAR_SEEDS?",
		"NEXAR_TOKEN":             "did you mean NEXAR_CLUSTER_TOKEN?",
		"NEXAR_CLUSTER_TOKENS":    "did you mean NEXAR_CLUSTER_TOKEN?",
		"NEXAR_RNAK":              "did you mean NEXAR_RANK?",
		"NEXAR_FORM_TIMEOUT":      "did you mean NEXAR_FORM_TIMEOUT_SECS?",
		"NEXAR_FORM_TIMEOUT_SEC":  "did you mean NEXAR_FORM_TIMEOUT_SECS?",
		"NEXAR_OF_SOMEBODY_ELSES": "nobody reads it: unset it",
	} {
		got := UnknownEnv([]string{"PATH=/bin", name + "=x", "NEXAR_EMPTY=", "=C:=x"})
		switch {
		case want == "" && len(got) > 0:
			t.Errorf("%s: %v, want nothing", name, got)
		case want != "" && (len(got) != 1 || got[0].What != "unknown variable "+name || got[0].Mend != want || got[0].Fatal):
			t.Errorf("%s: %v, want %q", name, got, want)
		}
	}
}

// Join warns of a variable that is misspelt, and tells of it where it is what
// keeps it from joining.
func TestJoinWarnsOfUnknownEnv(t *testing.T) {
	noEnv(t)
	t.Setenv("NEXAR_SEED", "127.0.0.1:1")
	var log strings.Builder
	cfg := Config{Log: slog.New(slog.NewTextHandler(&log, nil))}
	_, err := Join(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "unknown variable NEXAR_SEED: did you mean NEXAR_SEEDS?") {
		t.Errorf("without a seed: %v, want a hint at NEXAR_SEED", err)
	}
	cfg.Seeds, cfg.FormTimeout = []string{"127.0.0.1:1"}, time.Millisecond
	if _, err := Join(t.Context(), cfg); err == nil {
		t.Error("there is no seed, but Join has found one")
	}
	if !strings.Contains(log.String(), `level=WARN msg="unknown variable NEXAR_SEED" mend="did you mean NEXAR_SEEDS?"`) {
		t.Errorf("the log does not warn of NEXAR_SEED: %s", log.String())
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
