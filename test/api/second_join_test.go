package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// TestSecondJoin: a process that is a node of a world is told so when it joins again. It can join another world.
func TestSecondJoin(t *testing.T) {
	var nodes []*nexar.Node
	for range 2 {
		seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true})
		if err != nil {
			t.Fatal(err)
		}
		defer seed.Close()
		cfg := nexar.Config{Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0"}
		n, err := nexar.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := nexar.Join(ctx, cfg); err == nil || !strings.Contains(err.Error(), "This is the second Join of process") {
			t.Errorf("the second Join of a world: error %v", err)
		}
	}
	for _, n := range nodes {
		n.Close()
	}
}
