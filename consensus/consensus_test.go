package consensus_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus"
)

// A seed with a Log can be started again, and keeps its state where it was told.
func TestLog(t *testing.T) {
	cfg := nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, StateDir: t.TempDir(), Consensus: consensus.Log}
	for range 2 {
		seed, err := nexar.StartSeed(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(cfg.StateDir, "seeds.db")); err != nil {
			t.Error(err)
		}
		if _, err := nexar.StartSeed(t.Context(), cfg); err == nil {
			t.Error("two seeds have one directory")
		}
		if err := errors.Join(seed.Err(), seed.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestPeersNeedConsensus(t *testing.T) {
	cfg := nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, StateDir: t.TempDir(), Peers: []string{"127.0.0.1:7000"}}
	if _, err := nexar.StartSeed(t.Context(), cfg); !errors.Is(err, nexar.ErrConfig) {
		t.Errorf("error %v", err)
	}
}
