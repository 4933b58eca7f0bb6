package cluster

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// A container launches processes in the network namespace of a host, but in PID, IPC, mount and UTS
// namespaces of their own, with their own /proc and /dev/shm.
type container struct{ *host }

func (c container) start(cmd *exec.Cmd) error {
	const setUp = `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs none /dev/shm && exec "$0"`
	cmd.Args = []string{"sh", "-c", setUp, cmd.Path}
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	return c.host.start(cmd)
}

// TestContainers: processes of one user share memory if they share the network namespace. They need no other
// namespace in common, and without that one the others do not suffice.
func TestContainers(t *testing.T) {
	t.Parallel()
	require.Root(t)
	w, c := newNetwork(t, 2, ipv4), newWorkerSet(t)
	on := []launcher{w.hosts[0], container{w.hosts[0]}, container{w.hosts[0]}, w.hosts[1]}
	network := []int{0, 0, 0, 1}
	seed := c.start(w.hosts[0], "seed")
	mustSucceed(t, []result{seed.do(command{Do: "seed", N: len(on), Addr: ":" + seedPort})})
	var ranks []*worker
	for rank, launcher := range on {
		ranks = append(ranks, c.start(launcher, fmt.Sprint("rank ", rank), "NEXAR_SEEDS="+w.hosts[0].at(seedPort), fmt.Sprint("NEXAR_RANK=", rank)))
	}
	mustSucceed(t, runAll(ranks, command{Do: "join"}))
	mustSucceed(t, runAll(ranks, command{Do: "check"}))
	for rank, r := range runAll(ranks, command{Do: "peers"}) {
		wantPeers(t, rank, r, len(on)-1)
		for _, p := range r.Peers {
			if shared := p.Transport == "shm" && p.BulkTransport == "shm"; shared != (network[rank] == network[p.Rank]) {
				t.Errorf("rank %d (network %d) reaches rank %d (network %d) by %+v", rank, network[rank], p.Rank, network[p.Rank], p)
			}
		}
	}
}
