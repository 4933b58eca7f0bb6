package nexar

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/settings"
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
		"NEXAR_ENCRYPT_BULK":      "did you mean NEXAR_ENCRYPT_BULK_TRANSPORT?",
		"NEXAR_ELASTIC_ENABLE":    "did you mean NEXAR_ELASTIC_ENABLED?",
		"NEXAR_RECOVERY":          "did you mean NEXAR_RECOVERY_POLICY?",
		"NEXAR_MIN_WORLD_SIZE":    "did you mean NEXAR_ELASTIC_MIN_WORLD_SIZE?",
	} {
		got := CheckEnviron([]string{"PATH=/bin", name + "=x", "NEXAR_EMPTY=", "=C:=x"})
		switch {
		case want == "" && len(got) > 0:
			t.Errorf("%s: %v, want nothing", name, got)
		case want != "" && (len(got) != 1 || got[0].Text != "unknown variable "+name || got[0].Fix != want || got[0].Fatal):
			t.Errorf("%s: %v, want %q", name, got, want)
		}
	}
}

// Every variable of Config is known, and is found if a letter of it is missing.
func TestUnknownEnvKnowsAll(t *testing.T) {
	for name := range fields() {
		if got := CheckEnviron([]string{name + "=x"}); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
		misspelt := name[:len(name)-2] + name[len(name)-1:]
		got := CheckEnviron([]string{misspelt + "=x"})
		if want := "did you mean " + name + "?"; len(got) != 1 || got[0].Fix != want {
			t.Errorf("%s: %v, want %q", misspelt, got, want)
		}
	}
}

// docs/config.md has a row for every field, with its variables and its default,
// which says whether it has an effect; and the error that it shows is the one
// that there is.
func TestConfigPage(t *testing.T) {
	text, err := os.ReadFile("docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, f := range settings.Fields[Config]() {
		var row string
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "| `"+f.Name+"` |") {
				row += line
			}
		}
		cells := strings.Split(row, " | ")
		if len(cells) != 5 {
			t.Errorf("%s has %d cells", f.Name, len(cells))
			continue
		}
		for _, name := range f.Variables() {
			if !strings.Contains(cells[1], "`"+name+"`") {
				t.Errorf("the row of %s does not have %s: %s", f.Name, name, cells[1])
			}
		}
		if f.Default != "" && !strings.HasPrefix(cells[3], "`"+f.Default+"`") {
			t.Errorf("the row of %s has %s, want %s", f.Name, cells[3], f.Default)
		}
	}
	noEnv(t)
	t.Setenv("NEXAR_BARRIER_TIMEOUT_SECS", "soon")
	if _, err := Join(t.Context(), Config{}); err == nil || !strings.Contains(page, "    "+err.Error()+"\n") {
		t.Errorf("the page does not show the error %v", err)
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
	if !strings.Contains(log.String(), `level=WARN msg="unknown variable NEXAR_SEED" fix="did you mean NEXAR_SEEDS?"`) {
		t.Errorf("the log does not warn of NEXAR_SEED: %s", log.String())
	}
}
