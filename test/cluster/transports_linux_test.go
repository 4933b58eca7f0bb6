package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// filterUDP has a host drop all UDP packets from other hosts.
func (h *host) filterUDP(t *testing.T) {
	t.Helper()
	h.dropUDP(t, `iifname "eth0"`)
}

// dropUDP has a host drop the UDP packets that it receives and that match an expression of nft.
func (h *host) dropUDP(t *testing.T, match string) {
	t.Helper()
	_, err := h.try(fmt.Sprintf(`
		table inet nexar {
			chain in {
				type filter hook input priority 0;
				%s meta l4proto udp counter drop
			}
		}`, match), "nft", "-f", "-")
	require.Have(t, "nft", err == nil, fmt.Sprintf("nft cannot drop packets: %v", err))
}

// udpPackets returns the number of UDP packets that the filter of a host has dropped.
func (h *host) udpPackets(t *testing.T) (n int) {
	t.Helper()
	rules := h.run("nft", "list", "chain", "inet", "nexar", "in")
	_, count, _ := strings.Cut(rules, "counter packets ")
	if _, err := fmt.Sscan(count, &n); err != nil {
		t.Errorf("%v in %s", err, rules)
	}
	return n
}

// Where UDP is filtered, a world forms and works over TCP alone. By default nodes detect the filter and log
// it; with NEXAR_TRANSPORTS=tcp they send no UDP packet. The death of a process is noticed at once in
// both cases.
func TestWithoutUDP(t *testing.T) {
	t.Parallel()
	for name, transports := range map[string]string{"by default": "", "tcp": "tcp", "shm,tcp": "shm,tcp"} {
		t.Run(name, func(t *testing.T) {
			const ranks, victim = 3, 2
			c := newCluster(t, ranks, ipv4, func(*network, int) []string { return []string{"NEXAR_TRANSPORTS=" + transports} })
			for _, h := range c.hosts {
				h.filterUDP(t)
			}
			c.join()
			for rank, r := range runAll(c.ranks, command{Do: "peers"}) {
				wantPeers(t, rank, r, ranks-1)
				for _, p := range r.Peers {
					if p.Transport != "tcp+tls" || p.BulkTransport != "tcp+tls" || !p.Encrypted {
						t.Errorf("path from rank %d to rank %d: %+v, want TLS over TCP alone", rank, p.Rank, p)
					}
				}
				said := strings.Contains(c.ranks[rank].log.String(), "UDP does not pass to the seed")
				// The seed is on the host of rank 0, so rank 0 reaches it over UDP.
				if want := transports == "" && rank > 0; said != want {
					t.Errorf("rank %d has logged that UDP is filtered: %v, want %v\n%s", rank, said, want, c.ranks[rank].log.String())
				}
			}
			for rank, h := range c.hosts {
				if n := h.udpPackets(t); transports != "" && n > 0 {
					t.Errorf("%d UDP packets were sent to the host of rank %d", n, rank)
				}
			}
			c.ranks[victim].kill(os.Kill)
			for rank, r := range runAll(c.ranks[:victim], command{Do: "loop", Op: "barrier"}) {
				if r.Failure == nil || r.Failure.Rank != victim {
					t.Errorf("rank %d: %v, want the failure of rank %d", rank, r.Failure, victim)
				}
			}
		})
	}
}
