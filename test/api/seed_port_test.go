package api

import (
	"net"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

// TestDefaultSeedPort: the default port of a seed's address is 7946, for seeds and nodes.
func TestDefaultSeedPort(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		require.Have(t, "port7946", free(network, "127.0.0.1:"+nexar.SeedPort), "another process uses the port "+nexar.SeedPort)
	}
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1", World: 1, AllowWeakToken: true, Health: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	if got, want := seed.Addr(), "127.0.0.1:"+nexar.SeedPort; got != want {
		t.Errorf("the seed listens at %s, want %s", got, want)
	}
	if seed.HealthAddr() == "" {
		t.Error("the seed does not listen for health requests")
	}
	t.Setenv("NEXAR_SEEDS", "127.0.0.1,localhost")
	node, err := nexar.Join(t.Context(), nexar.Config{Listen: "127.0.0.1:0", FormTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	node.Close()
}

func free(network, addr string) bool {
	if network == "udp" {
		c, err := net.ListenPacket(network, addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	l, err := net.Listen(network, addr)
	if err == nil {
		l.Close()
	}
	return err == nil
}
