package nexar

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestSeedEnvironment: the seed reads the settings of an elastic world from its SeedConfig, or
// else from the environment. Nodes ignore them.
func TestSeedEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		cfg  SeedConfig
		want string // in the error; empty if none is expected
	}{
		"fields":         {nil, SeedConfig{Elastic: true, ElasticMin: 1, ElasticMax: 2}, ""},
		"variables":      {map[string]string{"NEXAR_ELASTIC_ENABLED": "1", "NEXAR_ELASTIC_MAX_WORLD_SIZE": "8"}, SeedConfig{}, ""},
		"not a number":   {map[string]string{"NEXAR_ELASTIC_MAX_WORLD_SIZE": "many"}, SeedConfig{}, `NEXAR_ELASTIC_MAX_WORLD_SIZE="many": not a whole number`},
		"not a switch":   {map[string]string{"NEXAR_ELASTIC_ENABLED": "maybe"}, SeedConfig{}, "NEXAR_ELASTIC_ENABLED"},
		"negative":       {nil, SeedConfig{ElasticMin: -1}, "NEXAR_ELASTIC_MIN_WORLD_SIZE=-1: negative"},
		"minimum":        {nil, SeedConfig{ElasticMin: 3, ElasticMax: 2}, "NEXAR_ELASTIC_MIN_WORLD_SIZE=3: must be at most NEXAR_ELASTIC_MAX_WORLD_SIZE (2)"},
		"minimum of two": {map[string]string{"NEXAR_ELASTIC_MAX_WORLD_SIZE": "4"}, SeedConfig{ElasticMin: 5}, "must be at most NEXAR_ELASTIC_MAX_WORLD_SIZE (4)"},
	} {
		t.Run(name, func(t *testing.T) {
			noEnv(t)
			for variable, value := range test.env {
				t.Setenv(variable, value)
			}
			test.cfg.Listen, test.cfg.World = "127.0.0.1:0", 1
			seed, err := StartSeed(t.Context(), test.cfg)
			if err == nil {
				defer seed.Close()
			}
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if _, err := ConfigFromEnv(); err != nil {
				t.Errorf("ConfigFromEnv: %v", err)
			}
			if _, err := Join(t.Context(), Config{Seeds: []string{"127.0.0.1:1"}, FormTimeout: time.Millisecond}); errors.Is(err, ErrConfig) {
				t.Errorf("Join: %v", err)
			}
		})
	}
}
