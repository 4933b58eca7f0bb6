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
	for end := time.Now().Add(time.Minute); !strings.Contains(text, "Rank 0 waits in all_reduce #1 for rank 1, which has made no call"); {
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
	brief, err := nexar.ClusterQuery{Wait: time.Second, Brief: true}.Query(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range brief.Nodes { // The clock of this process is that of the seed.
		if n.Snapshot == nil || n.OffsetError <= 0 || n.Offset.Abs() > n.OffsetError+time.Millisecond {
			t.Errorf("rank %d: clock off by %v ± %v", n.Rank, n.Offset, n.OffsetError)
		}
	}
	if list := brief.Changes; len(list) != 1 || list[0].What != trace.Formed || list[0].Size != 2 || time.Since(list[0].Time).Abs() > time.Hour {
		t.Errorf("changes %+v, want that the world has formed", list)
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

// TestStatusCounters: the status has the counters of calls, the facts about the process, and those about links.
func TestStatusCounters(t *testing.T) {
	cfg, nodes := statusWorld(t)
	const bytes = 256 << 10
	together := func(f func(n *nexar.Node) error) {
		t.Helper()
		errs := make(chan error, len(nodes))
		for _, n := range nodes {
			go func() { errs <- f(n) }()
		}
		for range nodes {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	}
	nodes[1].World().Register("echo", func(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil })
	together(func(n *nexar.Node) error {
		c, ctx := n.World(), t.Context()
		if err := nexar.AllReduce(ctx, c, make([]float32, bytes/4), nexar.Sum); err != nil {
			return err
		}
		sub, err := c.Split(ctx, 0, c.Rank())
		if err != nil {
			return err
		}
		if err := nexar.AllReduce(ctx, sub, make([]float32, bytes/4), nexar.Max); err != nil {
			return err
		}
		return sub.Close()
	})
	if _, err := nodes[0].World().Call(t.Context(), 1, "echo", make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	for rank, n := range mustStatus(t, cfg).Nodes {
		s := n.Snapshot
		if s == nil {
			t.Fatalf("rank %d: %s", rank, n.Missing)
		}
		counters := make(map[string]trace.Counter)
		for _, c := range s.Counters {
			counters[c.Op] = c
		}
		if c := counters["all_reduce"]; c.Calls != 2 || c.Bytes != 2*bytes || c.Ranks != 2 || c.Plan == "" || c.Durations.Count() != 2 || c.Durations.Sum <= 0 {
			t.Errorf("rank %d has made the all-reduces %+v", rank, c)
		}
		if c := counters["call"]; rank == 0 && (c.Calls != 1 || c.Bytes != 20 || c.Durations.Count() != 1) {
			t.Errorf("rank %d has made the calls %+v", rank, c)
		}
		p := s.Process
		if end := time.Until(p.CertificateEnd); p.Goroutines < 2 || p.HeapBytes == 0 || p.SharedBytes < 0 || p.Failures != 0 || p.Recoveries != 0 || end < time.Hour || end > 48*time.Hour {
			t.Errorf("rank %d is in the process %+v", rank, p)
		}
		if len(s.Links) != 1 || s.Links[0].Connections != 1 || s.Links[0].Class == "" || s.Links[0].Stalls != 0 {
			t.Errorf("rank %d has the links %+v", rank, s.Links)
		}
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
