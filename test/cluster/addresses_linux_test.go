package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhost"
)

// TestDeadAddressesOfSeed: addresses that drop all packets, before or beside the one at which the seed answers, are no evidence that UDP
// does not pass: a node joins over QUIC and warns of nothing.
func TestDeadAddressesOfSeed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ hosts, seeds string }{
		"one before":        {hosts: "10.77.0.99 theseed\n10.77.0.1 theseed\n", seeds: "theseed:7946"},
		"three before":      {hosts: "10.77.0.97 theseed\n10.77.0.98 theseed\n10.77.0.99 theseed\n10.77.0.1 theseed\n", seeds: "theseed:7946"},
		"IPv4 dead":         {hosts: "10.77.0.99 theseed\nfd77::1 theseed\n", seeds: "theseed:7946"},
		"IPv6 dead":         {hosts: "fd77::99 theseed\n10.77.0.1 theseed\n", seeds: "theseed:7946"},
		"in a list of them": {seeds: "10.77.0.98:7946,10.77.0.99:7946,10.77.0.1:7946"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newNetwork(t, 2, ipv4|ipv6)
			for i := 97; i <= 99; i++ { // The neighbor is known, so the kernel reports no error.
				w.hosts[1].run("ip", "neigh", "add", fmt.Sprint("10.77.0.", i), "lladdr", fmt.Sprint("02:00:00:00:00:", i), "dev", "eth0")
				w.hosts[1].run("ip", "neigh", "add", fmt.Sprint("fd77::", i), "lladdr", fmt.Sprint("02:00:00:00:00:", i), "dev", "eth0")
			}
			names := filepath.Join(t.TempDir(), "hosts")
			if err := os.WriteFile(names, []byte("127.0.0.1 localhost\n"+test.hosts), 0o644); err != nil {
				t.Fatal(err)
			}
			command := filepath.Join(programs.Dir(t), "nexar")
			env := []string{"NEXAR_CLUSTER_TOKEN=" + nexar.NewToken(), "NEXAR_SEEDS=" + test.seeds}
			serving := w.hosts[0].begin(t, env, command, "seed", "--listen", "[::]:7946", "--world", "1")
			serving.await(t, "On the other hosts")
			out := w.hosts[1].begin(t, env, "unshare", "--mount", "sh", "-c",
				fmt.Sprintf("mount --bind %s /etc/hosts && exec %s bench --op barrier --iters 3", names, command)).end(t)
			if strings.Contains(out, "UDP does not pass") {
				t.Errorf("a node warns that UDP does not pass:\n%s", out)
			}
			serving.end(t)
		})
	}
}

// TestLoopbackDown: where the loopback interface is down, nexar run says so instead of waiting for its ranks.
func TestLoopbackDown(t *testing.T) {
	t.Parallel()
	h, err := testhost.NewHost(t)
	require.Have(t, "netns", err == nil, fmt.Sprintf("cannot create a network namespace: %v", err))
	if out, err := h.Try("", filepath.Join(programs.Dir(t), "nexar"), "run", "-n", "2", "--", "true"); err == nil || !strings.Contains(err.Error(), "the loopback interface is down") {
		t.Errorf("nexar run ends with %v, output %q, want an error that names the loopback interface", err, out)
	}
}
