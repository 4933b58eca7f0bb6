package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// A world has a CA of the user. Nodes with its certificate and nodes without any form it. A node with
// the certificate of another CA is refused with an error that names both, and the world forms
// without it.
func TestUserCA(t *testing.T) {
	t.Parallel()
	cert, key := testpeer.NewUserCA(t, "ours", nil)
	other, _ := testpeer.NewUserCA(t, "theirs", nil)
	for _, transports := range [][]string{{"quic"}, {"tcp"}, {"tcp", "quic"}} {
		t.Run(strings.Join(transports, "+"), func(t *testing.T) {
			t.Parallel()
			token := nexar.NewToken()
			s := startLocalSeed(t, 2, nexar.SeedConfig{Token: token, CACertFile: cert, CAKeyFile: key})
			cfg := nodeConfig(s, token)
			cfg.Transports = transports

			stranger := cfg
			stranger.CAFile = other
			_, err := nexar.Join(t.Context(), stranger)
			checkRefusal(t, err, "CN=ours", "CN=theirs", "NEXAR_CA_FILE")
			thief := cfg
			thief.CAFile, thief.Token = cert, nexar.NewToken()
			if _, err := nexar.Join(t.Context(), thief); !errors.Is(err, nexar.ErrToken) {
				t.Errorf("with the CA and another token: error %v, want ErrToken", err)
			}

			withCA := cfg
			withCA.CAFile = cert
			nodes, errs := joinAll(t, []nexar.Config{withCA, cfg})
			mustBeNil(t, errs)
			mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return checkWorld(t.Context(), c, 1) }))
		})
	}
}

// A node with a CA refuses a seed whose CA signs itself.
func TestUserCANeedsASeedOfIt(t *testing.T) {
	t.Parallel()
	cert, _ := testpeer.NewUserCA(t, "ours", nil)
	for _, name := range []string{"quic", "tcp"} {
		token := nexar.NewToken()
		s := startLocalSeed(t, 1, nexar.SeedConfig{Token: token})
		cfg := nodeConfig(s, token)
		cfg.CAFile, cfg.Transports = cert, []string{name}
		_, err := nexar.Join(t.Context(), cfg)
		checkRefusal(t, err, "CN=nexar cluster", "CN=ours", "no CA of the user")
		_, err = nexar.QueryCluster(t.Context(), cfg)
		checkRefusal(t, err, "CN=nexar cluster", "CN=ours", "no CA of the user")
	}
}

func checkRefusal(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("error %v, want ErrIdentity", err)
	} else if missing := missingParts(err.Error(), parts); missing != nil {
		t.Errorf("error %v: does not contain %q", err, missing)
	}
}

func missingParts(text string, parts []string) (missing []string) {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			missing = append(missing, p)
		}
	}
	return missing
}

// Seeds that are started again with the same CA continue the cluster: nodes that joined before stay, and
// others join. With another CA they refuse to.
func TestUserCAOfSeveralSeeds(t *testing.T) {
	t.Parallel()
	cert, key := testpeer.NewUserCA(t, "ours", nil)
	other, otherKey := testpeer.NewUserCA(t, "theirs", nil)
	token, dir := nexar.NewToken(), t.TempDir()
	var peers []string
	for range 3 {
		peers = append(peers, testhost.FreePort(t))
	}
	start := func(cert, key string) (seeds []*nexar.Seed) {
		for i, addr := range peers {
			s, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{
				Listen: addr, World: 1, Elastic: true, Token: token, Peers: peers, Advertise: addr,
				StateDir: filepath.Join(dir, fmt.Sprint(i)), Consensus: raft.Open, CACertFile: cert, CAKeyFile: key,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			seeds = append(seeds, s)
		}
		return seeds
	}
	stop := func(seeds []*nexar.Seed) {
		for _, s := range seeds {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	cfg := nexar.Config{Seeds: peers, Token: token, Listen: "127.0.0.1:0", CAFile: cert, FormTimeout: time.Minute, RecoveryTimeout: time.Minute}
	seeds := start(cert, key)
	first, errs := joinAll(t, []nexar.Config{cfg})
	mustBeNil(t, errs)
	stop(seeds)

	seeds = start(cert, key)
	newcomer := make(chan error, 1)
	go func() {
		n, err := nexar.Join(t.Context(), cfg)
		if err == nil {
			err = n.Close()
		}
		newcomer <- err
	}()
	if err := admitOne(t.Context(), first[0]); err != nil {
		t.Fatalf("the newcomer is not admitted: %v", err)
	}
	if err := <-newcomer; err != nil {
		t.Errorf("joining after the restart: %v", err)
	}
	stop(seeds)

	for _, s := range start(other, otherKey) {
		select {
		case <-s.Done():
			if err := s.Err(); err == nil || missingParts(err.Error(), []string{"CN=ours", "CN=theirs"}) != nil {
				t.Errorf("with another CA: error %v, want one that names both", err)
			}
		case <-time.After(time.Minute):
			t.Error("with another CA: the seed runs")
		}
	}
}

// admitOne calls Node.Reconfigure until the world has two nodes.
func admitOne(ctx context.Context, n *nexar.Node) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for comm, err := range n.Epochs(ctx) {
		if err != nil || comm.Size() == 2 {
			return err
		}
		for changed := false; !changed; time.Sleep(10 * time.Millisecond) {
			if changed, err = n.Reconfigure(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// A CA that cannot be used is refused at the start, and names its setting.
func TestUserCASettings(t *testing.T) {
	t.Parallel()
	cert, _ := testpeer.NewUserCA(t, "ours", nil)
	_, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, Token: nexar.NewToken(), CACertFile: cert})
	if !errors.Is(err, nexar.ErrConfig) || !strings.Contains(err.Error(), "CAKeyFile") {
		t.Errorf("no key: error %v, want ErrConfig with CAKeyFile", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = nexar.Join(t.Context(), nexar.Config{Seeds: []string{"127.0.0.1:1"}, CAFile: empty})
	if !errors.Is(err, nexar.ErrConfig) || !strings.Contains(err.Error(), "NEXAR_CA_FILE=") {
		t.Errorf("no certificate: error %v, want ErrConfig with NEXAR_CA_FILE", err)
	}
}
