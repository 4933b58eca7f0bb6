package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/trace"
)

// statusWorld forms a world of two nodes, and returns a Config for QueryCluster.
func statusWorld(t *testing.T) (cfg nexar.Config, nodes []*nexar.Node) {
	t.Helper()
	cfg = nexar.Config{Token: nexar.NewToken()}
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: cfg.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seed.Close() })
	cfg.Seeds = []string{seed.Addr()}
	s := mustStatus(t, cfg)
	if s.Formed || s.World != 2 || len(s.Nodes) != 0 {
		t.Errorf("got %+v, want 0 of 2 nodes", s)
	}
	nodes = make([]*nexar.Node, 2)
	joinBoth(t, seed, nodes, func(i int, c *nexar.Config) { c.Rank, c.Token = &i, cfg.Token })
	for _, n := range nodes {
		t.Cleanup(func() { n.Close() })
	}
	return cfg, nodes
}

func mustStatus(t *testing.T, cfg nexar.Config) trace.Cluster {
	t.Helper()
	s, err := nexar.QueryCluster(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStatusNamesLateRank: the status names a late rank and the number of ranks that wait for it.
func TestStatusNamesLateRank(t *testing.T) {
	cfg, nodes := statusWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	h := nexar.StartAllReduce(ctx, nodes[0].World(), []float32{1}, nexar.Sum)
	defer h.Wait()
	defer cancel()
	text := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(text, "Rank 0 waits in all_reduce #1 for rank 1, which has made no call\n"); {
		if time.Now().After(end) {
			t.Fatalf("rank 1 is not reported as late in\n%s", text)
		}
		var b strings.Builder
		if _, err := mustStatus(t, cfg).WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		text = b.String()
	}
	for _, part := range []string{"epoch 1, 2 of 2 ranks heard of\n", "all_reduce #1 (1 × float32, sum)"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	b, err := json.Marshal(mustStatus(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	var s trace.Cluster
	if err := json.Unmarshal(b, &s); err != nil || len(s.Nodes) != 2 || s.Nodes[1].Node != nodes[1].ID().String() || s.Nodes[0].Snapshot.Operations[0].Op != "all_reduce" {
		t.Errorf("read %+v, %v", s, err)
	}
}

// TestStatusOfLeave: the status shows that a rank is in Leave while another one waits for it, and no calls that do not match.
func TestStatusOfLeave(t *testing.T) {
	cfg, nodes := statusWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- nodes[1].Leave(ctx) }()
	h := nexar.StartAllReduce(ctx, nodes[0].World(), []float32{1}, nexar.Sum)
	text := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(text, "leave #1") || !strings.Contains(text, "all_reduce #1"); {
		if time.Now().After(end) {
			t.Fatalf("the leave of rank 1 is not reported in\n%s", text)
		}
		var b strings.Builder
		if _, err := mustStatus(t, cfg).WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		text = b.String()
	}
	if strings.Contains(text, "do not match") {
		t.Errorf("leave counts as a call that does not match in\n%s", text)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("leave: %v, want the end of the context", err)
	}
	if err := h.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("all-reduce: %v, want the end of the context", err)
	}
}

func TestStatusErrors(t *testing.T) {
	cfg, _ := statusWorld(t)
	wrong := nexar.Config{Seeds: cfg.Seeds, Token: nexar.NewToken()}
	for _, test := range []struct {
		cfg  nexar.Config
		want error
		text string
	}{
		{wrong, nil, "query cluster: seed " + cfg.Seeds[0] + " refused this node: wrong cluster token"},
		{nexar.Config{Token: cfg.Token}, nexar.ErrConfig, "no seed: set NEXAR_SEEDS"},
		{nexar.Config{Seeds: []string{"nowhere:99999"}}, nexar.ErrConfig, "nowhere:99999"},
		{nexar.Config{Seeds: []string{"127.0.0.1:1"}, Token: cfg.Token}, nil, "no seed could be reached"},
	} {
		_, err := nexar.QueryCluster(t.Context(), test.cfg)
		if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("error %v, want one with %q", err, test.text)
		}
	}
}
