package api

import (
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestCommConfig: Config has the values of the program and the defaults, no token, and belongs to the caller.
func TestCommConfig(t *testing.T) {
	t.Setenv("NEXAR_BUCKET_BYTES", "4096")
	for _, c := range worldtest.Local(t, 2, nexar.Config{Algorithms: []string{"all_reduce=ring"}, Deterministic: true, Token: nexar.NewToken()}) {
		cfg := c.Config()
		if cfg.BucketBytes != 4096 || !cfg.Deterministic || cfg.BarrierTimeout != 30*time.Minute || cfg.Token != "" {
			t.Errorf("Config is %+v", cfg)
		}
		cfg.Algorithms[0] = "all_reduce=flat"
		if again := c.Config().Algorithms; !slices.Equal(again, []string{"all_reduce=ring"}) {
			t.Errorf("a change of the copy changes the configuration: %v", again)
		}
	}
}

// TestCommID: ranks of one communicator have the same ID, others have another one.
func TestCommID(t *testing.T) {
	comms := worldtest.Local(t, 4, nexar.Config{})
	ids := make([][]uint64, len(comms))
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		half, err := c.Split(t.Context(), rank%2, 0)
		if err != nil {
			return err
		}
		defer half.Close()
		all, err := c.Dup(t.Context())
		if err != nil {
			return err
		}
		defer all.Close()
		ids[rank] = []uint64{c.ID(), all.ID(), half.ID()}
		return nil
	})
	distinct := map[uint64]bool{}
	for rank, own := range ids {
		if !slices.Equal(own[:2], ids[0][:2]) || own[2] != ids[rank%2][2] {
			t.Errorf("rank %d has the IDs %x, rank 0 has %x", rank, own, ids[0])
		}
		for _, id := range own {
			distinct[id] = true
		}
	}
	if len(distinct) != 4 {
		t.Errorf("four communicators have %d IDs", len(distinct))
	}
}
