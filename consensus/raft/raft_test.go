//race:none tests of other packages use it with goroutines

package raft_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
)

// A seed can be restarted, and stores its state in StateDir.
func TestOpen(t *testing.T) {
	cfg := nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true, StateDir: t.TempDir(), Consensus: raft.Open}
	for range 2 {
		seed, err := nexar.StartSeed(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(cfg.StateDir, "seeds.db")); err != nil {
			t.Error(err)
		}
		if _, err := nexar.StartSeed(t.Context(), cfg); err == nil {
			t.Error("a second seed started in the same StateDir")
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

// The CA of a cluster is in the log alone: a file of it that is lost or restored would say nothing.
func TestLogHasTheCA(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true, StateDir: dir, Consensus: raft.Open})
		if err != nil {
			t.Fatal(err)
		}
		seed.Close()
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 2 || filepath.Base(files[0]) != "seeds.db" || filepath.Base(files[1]) != "seeds.lock" {
			t.Errorf("files %q, error %v, want seeds.db and seeds.lock", files, err)
		}
	}
}
