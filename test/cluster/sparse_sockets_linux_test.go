package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// trafficVariable is the duration of the traffic of TestSparseSockets, such as "1h". By default it is short.
const trafficVariable = "TRAFFIC"

// TestSparseSockets: the processes of sparse topologies have TCP connections to their neighbors and to the seed, and to no
// other process, while they send messages between random ranks and after that.
func TestSparseSockets(t *testing.T) {
	t.Parallel()
	var long time.Duration
	if text := os.Getenv(trafficVariable); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil || long <= 0 {
			t.Fatalf("%s=%q, want a positive duration such as 1h", trafficVariable, text)
		}
	}
	var mu sync.Mutex
	var lines []string
	for _, w := range []struct {
		topology           string
		ranks, connections int // connections is the largest number of neighbors
	}{{"k-regular:2", 6, 2}, {"k-regular:4", 9, 4}, {"hypercube", 8, 3}} {
		t.Run(w.topology, func(t *testing.T) {
			if long > 0 {
				t.Parallel()
			}
			set := newWorkerSet(t)
			workers := set.startWorld(w.ranks, "NEXAR_TOPOLOGY="+w.topology, "NEXAR_TRANSPORTS=tcp")
			near := make([]map[int]bool, w.ranks)
			for rank, r := range runAll(workers, command{Do: "peers"}) {
				near[rank] = make(map[int]bool)
				wantPeers(t, rank, r, w.ranks-1)
				for _, p := range r.Peers {
					if p.Hops == 1 {
						near[rank][p.Rank] = true
					}
				}
				if len(near[rank]) > w.connections || len(near[rank]) == 0 {
					t.Errorf("rank %d has the neighbors %v, want 1 to %d", rank, near[rank], w.connections)
				}
			}
			pending := startAll(workers, command{Do: "traffic", Rounds: 1000, Duration: long, Tag: 1 + len(w.topology)})
			samples, limit := 0, time.Now().Add(long+commandTimeout)
			for len(pending[0]) == 0 && !t.Failed() && time.Now().Before(limit) {
				checkConnections(t, workers, near)
				samples++
				time.Sleep(100*time.Millisecond + long/1000)
			}
			reports := awaitAll(workers, pending)
			mustSucceed(t, reports)
			checkConnections(t, workers, near)
			line := fmt.Sprintf("%-12s %2d ranks, at most %d neighbors: %7d messages and barriers, connections checked %d times",
				w.topology, w.ranks, w.connections, reports[0].Rounds, samples+1)
			t.Log(line)
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		})
	}
	if long > 0 {
		t.Cleanup(func() {
			if t.Failed() {
				return
			}
			slices.Sort(lines)
			writeReport(t, fmt.Sprintf(`Messages of random lengths between random ranks of sparse topologies for %v, with TCP connections to the
neighbors and to the seed only; printed by "make traffic".
%s

%s
`, long, machine(), strings.Join(lines, "\n")))
		})
	}
}

// checkConnections checks that each worker has established TCP connections to all of its neighbors, to one listener
// outside the world, the seed, and to no other process. A connection that a worker has not accepted yet seems to lead to another
// process, so one sample with too many does not count.
func checkConnections(t *testing.T, workers []*worker, near []map[int]bool) {
	t.Helper()
	var wrong []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if wrong = wrongConnections(t, workers, near); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// wrongConnections describes the workers with other connections than checkConnections requires. A connection to a worker
// that is not a neighbor fails the test at once.
func wrongConnections(t *testing.T, workers []*worker, near []map[int]bool) (wrong []string) {
	t.Helper()
	mine, owner := connections(t, workers)
	for rank := range workers {
		linked, outside := make(map[int]bool), make(map[netip.AddrPort]bool)
		for _, p := range mine[rank] {
			if other, ok := owner[socketAddrs{p.remote, p.local}]; ok {
				if linked[other] = true; !near[rank][other] {
					t.Errorf("rank %d has a connection to rank %d, which is not a neighbor", rank, other)
				}
			} else {
				outside[p.remote] = true
			}
		}
		if !maps.Equal(linked, near[rank]) || len(outside) != 1 {
			wrong = append(wrong, fmt.Sprintf("rank %d has connections to the ranks %v and to %v, want the neighbors %v and one seed",
				rank, slices.Sorted(maps.Keys(linked)), slices.Collect(maps.Keys(outside)), slices.Sorted(maps.Keys(near[rank]))))
		}
	}
	return wrong
}

// socketAddrs are the addresses of a TCP socket.
type socketAddrs struct{ local, remote netip.AddrPort }

// connections returns the established TCP sockets of each worker, and the worker of each.
func connections(t *testing.T, workers []*worker) (mine [][]socketAddrs, owner map[socketAddrs]int) {
	t.Helper()
	inodes := make(map[string]socketAddrs)
	for _, fields := range table(t, "/proc/net/tcp") {
		const established = "01"
		if len(fields) > 9 && fields[3] == established {
			inodes["socket:["+fields[9]+"]"] = socketAddrs{hexAddr(t, fields[1]), hexAddr(t, fields[2])}
		}
	}
	mine, owner = make([][]socketAddrs, len(workers)), make(map[socketAddrs]int)
	for rank, w := range workers {
		for _, link := range descriptors(t, w.cmd.Process.Pid) {
			if p, ok := inodes[link]; ok {
				owner[p] = rank
				mine[rank] = append(mine[rank], p)
			}
		}
	}
	return mine, owner
}

// hexAddr decodes an IPv4 address and port of /proc/net/tcp. The address is a number in the byte order of the machine.
func hexAddr(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	a, err := strconv.ParseUint(host, 16, 32)
	p, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil {
		t.Fatalf("/proc/net/tcp has the address %q", text)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(a), byte(a >> 8), byte(a >> 16), byte(a >> 24)}), uint16(p))
}
