package api

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// Only a token of NewToken is accepted, and a seed without one only if the program says so.
func TestWeakTokens(t *testing.T) {
	seed := func(cfg nexar.SeedConfig) error {
		cfg.Listen, cfg.World = "127.0.0.1:0", 1
		s, err := nexar.StartSeed(t.Context(), cfg)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	join := func(cfg nexar.Config) error {
		cfg.Seeds, cfg.FormTimeout = []string{"127.0.0.1:1"}, time.Millisecond
		_, err := nexar.Join(t.Context(), cfg)
		return err
	}
	const weak = "changemechangemechangeme123"
	peers := []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"}
	refused := map[string]func() error{
		"a seed without a token":        func() error { return seed(nexar.SeedConfig{}) },
		"a seed with a weak token":      func() error { return seed(nexar.SeedConfig{Token: weak}) },
		"a seed with a weak peer token": func() error { return seed(nexar.SeedConfig{Token: nexar.NewToken(), PeerToken: weak}) },
		"a node with a weak token":      func() error { return join(nexar.Config{Token: weak}) },
		"a query with a weak token": func() error {
			_, err := nexar.QueryCluster(t.Context(), nexar.Config{Seeds: peers, Token: weak})
			return err
		},
	}
	allowed := map[string]func() error{
		"a seed without a token":   func() error { return seed(nexar.SeedConfig{AllowWeakToken: true}) },
		"a seed with a weak token": func() error { return seed(nexar.SeedConfig{Token: weak, AllowWeakToken: true}) },
		"a node with a weak token": func() error { return join(nexar.Config{Token: weak, AllowWeakToken: true}) },
	}
	for name, f := range refused {
		if err := f(); !errors.Is(err, nexar.ErrConfig) || !strings.Contains(err.Error(), "nexar token") || strings.Contains(err.Error(), weak) {
			t.Errorf("%s: error %v, want ErrConfig with the remedy and without the token", name, err)
		}
	}
	if err := refused["a seed with a weak peer token"](); !strings.Contains(err.Error(), "(PeerToken, --peer-token-file): the token") {
		t.Errorf("a weak peer token: error %v, want that it names PeerToken", err)
	}
	for name, f := range allowed {
		if err := f(); errors.Is(err, nexar.ErrConfig) {
			t.Errorf("%s: error %v with AllowWeakToken", name, err)
		}
	}
	t.Setenv("NEXAR_ALLOW_WEAK_TOKEN", "1")
	for name, f := range refused {
		if err := f(); errors.Is(err, nexar.ErrConfig) {
			t.Errorf("%s: error %v with NEXAR_ALLOW_WEAK_TOKEN=1", name, err)
		}
	}
}

// The error about a weak token names where it comes from.
func TestSourceOfWeakToken(t *testing.T) {
	const weak = "changemechangemechangeme123"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(weak), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(token, file string) error{
		"seed": func(token, file string) error {
			_, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, Token: token, TokenFile: file})
			return err
		},
		"node": func(token, file string) error {
			_, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{"127.0.0.1:1"}, Token: token, TokenFile: file})
			return err
		},
	}
	for name, call := range calls {
		for _, test := range []struct{ variable, value, token, file, want string }{
			{"NEXAR_CLUSTER_TOKEN", weak, "", "", "NEXAR_CLUSTER_TOKEN: the token"},
			{"NEXAR_CLUSTER_TOKEN_FILE", file, "", "", fmt.Sprintf("NEXAR_CLUSTER_TOKEN_FILE: token file %q: the token", file)},
			{"NEXAR_CLUSTER_TOKEN", "", weak, "", ": Token: the token"},
			{"NEXAR_CLUSTER_TOKEN", "", "", file, fmt.Sprintf(": TokenFile: token file %q: the token", file)},
		} {
			t.Setenv(test.variable, test.value)
			if err := call(test.token, test.file); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), weak) {
				t.Errorf("%s, %s=%q, Token %q, TokenFile %q: error %v, want %q", name, test.variable, test.value, test.token, test.file, err, test.want)
			}
			t.Setenv(test.variable, "")
		}
	}
}
