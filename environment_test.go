package nexar

import (
	"errors"
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
			t.Errorf("%s: %v, want no result", name, got)
		case want != "" && (len(got) != 1 || got[0].Text != "unknown variable "+name || got[0].Fix != want || got[0].Fatal):
			t.Errorf("%s: %v, want %q", name, got, want)
		}
	}
}

// TestRustVariables: variables of the Rust crate nexar without a setting here are explained.
func TestRustVariables(t *testing.T) {
	for _, name := range []string{"NEXAR_MAX_FRAME_BYTES", "NEXAR_RECV_QUEUE_DEPTH", "NEXAR_RECV_INFLIGHT_BYTES"} {
		got := CheckEnviron([]string{name + "=4096"})
		if len(got) != 1 || !strings.HasPrefix(got[0].Text, name+" has no effect: ") || got[0].Fix != "unset it" || got[0].Fatal {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCaseOfVariables: the case of values has no meaning, as in the Rust crate nexar.
func TestCaseOfVariables(t *testing.T) {
	for name, value := range map[string]string{
		"NEXAR_TOPOLOGY": "K_Regular:4", "NEXAR_RECOVERY_POLICY": "AUTO", "NEXAR_LINKS": "Eager", "NEXAR_MEMORY": "INFERENCE",
		"NEXAR_LOG": "OFF", "NEXAR_SPARE": "Yes", "NEXAR_ENCRYPT_BULK_TRANSPORT": "False",
	} {
		t.Setenv(name, value)
	}
	cfg, err := ConfigFromEnv()
	if err != nil || cfg.Recovery != Automatic || cfg.Links != "eager" || cfg.Memory != "inference" || !cfg.Spare || !cfg.PlainBulk || cfg.Log == nil {
		t.Errorf("got %+v, error %v", cfg, err)
	}
}

// TestNodesCheckElasticVariables: a node refuses the values of the variables of elastic worlds that a seed refuses.
func TestNodesCheckElasticVariables(t *testing.T) {
	for pair, want := range map[string]string{
		"NEXAR_ELASTIC_MIN_WORLD_SIZE=-1":   "NEXAR_ELASTIC_MIN_WORLD_SIZE=-1: negative",
		"NEXAR_ELASTIC_MAX_WORLD_SIZE=many": `NEXAR_ELASTIC_MAX_WORLD_SIZE="many": not a whole number`,
		"NEXAR_ELASTIC_ENABLED=off":         `NEXAR_ELASTIC_ENABLED="off": write 0 or 1`,
	} {
		t.Run(pair, func(t *testing.T) {
			name, value, _ := strings.Cut(pair, "=")
			t.Setenv(name, value)
			if _, err := Join(t.Context(), Config{Seeds: []string{"127.0.0.1:1"}, FormTimeout: time.Millisecond}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

// TestUnknownEnvKnowsAll: all variables of Config are known, and suggested if a letter is missing.
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

// TestConfigPage: docs/config.md has a row for each field, with its variables and default, and
// quotes the actual error.
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
			t.Errorf("row of %s has %d cells", f.Name, len(cells))
			continue
		}
		for _, name := range f.Variables() {
			if !strings.Contains(cells[1], "`"+name+"`") {
				t.Errorf("row of %s lacks %s: %s", f.Name, name, cells[1])
			}
		}
		if f.Default != "" && !strings.HasPrefix(cells[3], "`"+f.Default+"`") {
			t.Errorf("row of %s has %s, want %s", f.Name, cells[3], f.Default)
		}
	}
	t.Setenv("NEXAR_BARRIER_TIMEOUT_SECS", "soon")
	if _, err := Join(t.Context(), Config{}); err == nil || !strings.Contains(page, "    "+err.Error()+"\n") {
		t.Errorf("the page does not quote the error %v", err)
	}
}

// TestJoinWarnsOfUnknownEnv: Join logs a warning for a misspelled variable, and its error names the
// variable if the setting is missing.
func TestJoinWarnsOfUnknownEnv(t *testing.T) {
	t.Setenv("NEXAR_SEED", "127.0.0.1:1")
	var log strings.Builder
	cfg := Config{Log: slog.New(slog.NewTextHandler(&log, nil))}
	_, err := Join(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "unknown variable NEXAR_SEED: did you mean NEXAR_SEEDS?") {
		t.Errorf("without a seed: error %v, want one that names NEXAR_SEED", err)
	}
	cfg.Seeds, cfg.FormTimeout = []string{"127.0.0.1:1"}, time.Millisecond
	if _, err := Join(t.Context(), cfg); err == nil {
		t.Error("Join without a seed succeeded")
	}
	if !strings.Contains(log.String(), `level=WARN msg="unknown variable NEXAR_SEED" fix="did you mean NEXAR_SEEDS?"`) {
		t.Errorf("no warning about NEXAR_SEED in the log: %s", log.String())
	}
	// One rank of a nexar run warns for all.
	for local, want := range map[string]int{"0": 1, "1": 0} {
		log.Reset()
		t.Setenv("NEXAR_LOCAL_RANK", local)
		if _, err := Join(t.Context(), cfg); err == nil {
			t.Error("Join without a seed succeeded")
		}
		if got := strings.Count(log.String(), "unknown variable"); got != want {
			t.Errorf("local rank %s: %d warnings, want %d: %s", local, got, want, log.String())
		}
	}
}
