package api

import (
	"errors"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testpeer"
)

// The certificates of a CA come from a file, and need a seed.
func TestCAFile(t *testing.T) {
	path, _ := testpeer.NewUserCA(t, "ours", nil)
	t.Setenv("NEXAR_CA_FILE", path)
	if cfg, err := nexar.ConfigFromEnv(); err != nil || cfg.CAFile != path {
		t.Errorf("CAFile %q, error %v, want %q", cfg.CAFile, err, path)
	}
	if _, err := nexar.JoinOrLocal(t.Context(), nexar.Config{}); !errors.Is(err, nexar.ErrConfig) || !strings.Contains(err.Error(), "NEXAR_CA_FILE is set, but there is no seed") {
		t.Errorf("JoinOrLocal without a seed: error %v, want ErrConfig", err)
	}
}
