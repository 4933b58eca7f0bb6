package api

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testlog"
)

// The seed refuses a node that does not answer at the address that it advertises. The error has
// that address and the one that the seed sees.
func TestWrongAdvertise(t *testing.T) {
	_, cfg := oneSeed(t, func(*nexar.SeedConfig) {})
	cfg.Advertise = "127.0.0.1:1"
	for name, transports := range map[string][]string{"all": nil, "tcp": {"tcp"}, "quic": {"quic"}} {
		cfg.Transports = transports
		err := joinFails(t, cfg)
		for _, want := range []string{"127.0.0.1:1 (", "the seed sees it at 127.0.0.1:", "NEXAR_ADVERTISE"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q, want it to contain %q", name, err, want)
			}
		}
		if errors.Is(err, nexar.ErrNotFormed) {
			t.Errorf("%s: error %v, want that of the seed and not a timeout", name, err)
		}
	}
}

// The address of another node is as wrong as one at which nothing listens.
func TestAdvertiseOfAnotherNode(t *testing.T) {
	_, cfg := oneSeed(t, func(*nexar.SeedConfig) {})
	ctx, cancel := context.WithCancel(t.Context())
	first := cfg
	first.Listen = testhost.FreePort(t)
	first.Advertise = first.Listen
	done := make(chan error, 1)
	go func() {
		_, err := nexar.Join(ctx, first)
		done <- err
	}()
	defer func() {
		cancel()
		<-done
	}()
	cfg.Advertise = first.Listen
	for {
		err := joinFails(t, cfg)
		if strings.Contains(err.Error(), "nothing listens there") {
			continue // The first node has not begun to listen.
		}
		if !strings.Contains(err.Error(), "answers there") || !strings.Contains(err.Error(), first.Listen) {
			t.Errorf("error %v, want that another node answers at %s", err, first.Listen)
		}
		return
	}
}

// A right address passes over each transport, and leaves no trace in the logs. An address that
// is not checked passes, too.
func TestRightAdvertise(t *testing.T) {
	for name, transports := range map[string][]string{"all": nil, "tcp": {"tcp"}, "quic": {"quic"}, "unchecked": {"tcp"}} {
		t.Run(name, func(t *testing.T) {
			var log testlog.Buffer
			_, cfg := oneSeed(t, func(cfg *nexar.SeedConfig) {
				cfg.World = 1
				cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			})
			cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			cfg.Transports, cfg.Listen = transports, testhost.FreePort(t)
			cfg.Advertise = cfg.Listen
			if name == "unchecked" {
				cfg.Advertise, cfg.AdvertiseUnchecked = "127.0.0.1:1", true
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			node, err := nexar.Join(ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			cluster, err := nexar.QueryCluster(ctx, cfg)
			if err != nil || len(cluster.Nodes) != 1 || cluster.Nodes[0].Addr != cfg.Advertise {
				t.Errorf("the nodes are %+v, %v, want one with address %s", cluster.Nodes, err, cfg.Advertise)
			}
			if log.String() != "" {
				t.Errorf("the log has %q, want nothing", log.String())
			}
		})
	}
}
