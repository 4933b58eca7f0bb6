package nexar

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// sampleToken is a token of NewToken.
const sampleToken = "hzl2-2hyn-oph4-hers-r7qt-szch-goto-bef7-fal7-bhc6-q2dj-5lq2-67na"

// Only a token of NewToken is accepted, and a seed without one only if the program says so.
func TestWeakTokens(t *testing.T) {
	seed := func(cfg SeedConfig) error {
		cfg.Listen, cfg.World = "127.0.0.1:0", 1
		s, err := StartSeed(t.Context(), cfg)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	join := func(cfg Config) error {
		cfg.Seeds, cfg.FormTimeout = []string{"127.0.0.1:1"}, time.Millisecond
		_, err := Join(t.Context(), cfg)
		return err
	}
	const weak = "changemechangemechangeme123"
	peers := []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"}
	refused := map[string]func() error{
		"a seed without a token":        func() error { return seed(SeedConfig{}) },
		"a seed with a weak token":      func() error { return seed(SeedConfig{Token: weak}) },
		"a seed with a weak peer token": func() error { return seed(SeedConfig{Token: sampleToken, PeerToken: weak}) },
		"a node with a weak token":      func() error { return join(Config{Token: weak}) },
		"a query with a weak token": func() error {
			_, err := QueryCluster(t.Context(), Config{Seeds: peers, Token: weak})
			return err
		},
	}
	allowed := map[string]func() error{
		"a seed without a token":   func() error { return seed(SeedConfig{AllowWeakToken: true}) },
		"a seed with a weak token": func() error { return seed(SeedConfig{Token: weak, AllowWeakToken: true}) },
		"a node with a weak token": func() error { return join(Config{Token: weak, AllowWeakToken: true}) },
	}
	noEnv(t)
	for name, f := range refused {
		if err := f(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "nexar token") || strings.Contains(err.Error(), weak) {
			t.Errorf("%s: error %v, want ErrConfig with the remedy and without the token", name, err)
		}
	}
	if err := refused["a seed with a weak peer token"](); !strings.Contains(err.Error(), "PeerToken: the token") {
		t.Errorf("a weak peer token: error %v, want that it names PeerToken", err)
	}
	for name, f := range allowed {
		if err := f(); errors.Is(err, ErrConfig) {
			t.Errorf("%s: error %v with AllowWeakToken", name, err)
		}
	}
	t.Setenv("NEXAR_ALLOW_WEAK_TOKEN", "1")
	for name, f := range refused {
		if err := f(); errors.Is(err, ErrConfig) {
			t.Errorf("%s: error %v with NEXAR_ALLOW_WEAK_TOKEN=1", name, err)
		}
	}
}
