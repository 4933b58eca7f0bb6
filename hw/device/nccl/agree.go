package nccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// A report describes a rank to the others.
type report struct {
	GPU, Peer, Deterministic int32 // 1 for true; Peer: the device is a device.Peer and reduces
	Version                  int32 // of NCCL; 0 without
	UUID                     [16]byte
	Host                     [64]byte
}

// agree decides how the ranks of each host exchange data, alike on all ranks, and creates the communicators.
func (g *Group) agree(ctx context.Context) error {
	own, why := g.inspect()
	reports := make([]report, g.comm.Size())
	if err := nexar.AllGather(ctx, g.comm, reports, []report{own}); err != nil {
		return err
	}
	methods, reasons := g.decide(reports)
	g.reason = reasons[g.host]
	if why != nil && g.reason != "" {
		g.reason += ": " + why.Error()
	}
	if methods == nil {
		return nil
	}
	var err error
	if g.local, err = g.comm.Split(ctx, g.host, g.comm.Rank()); err != nil {
		return err
	}
	if g.cross, err = g.comm.Split(ctx, g.index, g.host); err != nil {
		return err
	}
	g.inside = throughHost{g}
	switch methods[g.host] {
	case "nccl":
		g.inside = byNCCL{g}
		err = g.connect(ctx)
	case "peer":
		err = g.connectPeers(ctx)
	}
	if err != nil {
		return err
	}
	// The GPUs of a host may turn out not to access each other.
	direct := make([]int32, 1)
	if g.Inside() != "host" {
		direct[0] = 1
	}
	if err := nexar.AllReduce(ctx, g.comm, direct, nexar.Max); err != nil {
		return err
	}
	if direct[0] == 0 {
		g.inside = nil
	}
	return nil
}

// inspect describes this rank, and says why it does not use NCCL.
func (g *Group) inspect() (r report, why error) {
	host := g.cfg.Host
	if host == "" {
		host = fmt.Sprint("rank ", g.comm.LocalRanks()[0])
	}
	copy(r.Host[:], host)
	if g.comm.Deterministic() {
		r.Deterministic = 1
		return r, nil
	}
	_, isPeer := g.stream.Device().(device.Peer)
	_, reduces := g.stream.(device.Reducer)
	if isPeer && reduces && g.cfg.ExchangeBuffer > 0 {
		r.Peer = 1
	}
	gpu, ok := g.stream.Device().(*cuda.Device)
	if !ok {
		return r, fmt.Errorf("the device of rank %d is %s, not a GPU", g.comm.Rank(), g.stream.Device().Name())
	}
	g.gpu = gpu
	r.GPU, r.UUID = 1, gpu.Info().UUID
	var err error
	if g.handle, err = cuda.Handle(g.stream); err != nil {
		return r, err
	}
	if g.lib, err = open(g.cfg.Library); err != nil {
		return r, err
	}
	r.Version = int32(g.lib.version)
	return r, nil
}

// decide returns the method of each host, from the same reports on all ranks, and the reason for not using NCCL. Without
// methods, all methods of the Group are those of DeviceComm, and all hosts have the same reason.
func (g *Group) decide(reports []report) (methods, reasons []string) {
	g.place(reports)
	none := func(format string, args ...any) ([]string, []string) {
		reason := fmt.Sprintf(format, args...)
		for range g.hosts {
			reasons = append(reasons, reason)
		}
		return nil, reasons
	}
	for rank, r := range reports {
		if r.Deterministic != 0 {
			return none("rank %d is deterministic", rank)
		}
	}
	for h, ranks := range g.hosts {
		if len(ranks) != len(g.hosts[0]) {
			return none("the host of rank %d has %d ranks, and that of rank 0 has %d", g.hosts[h][0], len(ranks), len(g.hosts[0]))
		}
	}
	if len(g.hosts[0]) == 1 {
		return none("each host has one rank")
	}
	var first string
	used := false
	for h, ranks := range g.hosts {
		method, reason := g.methodOf(ranks, reports)
		methods, reasons = append(methods, method), append(reasons, reason)
		g.limited = g.limited || method == "nccl"
		used = used || method != "host"
		first = cmp.Or(first, reasons[h])
	}
	if !used {
		reasons = nil
		return none("%s", first)
	}
	return methods, reasons
}

// place finds the hosts of the ranks, in the order of their first ranks.
func (g *Group) place(reports []report) {
	byHost := make(map[[64]byte]int)
	for rank, r := range reports {
		h, ok := byHost[r.Host]
		if !ok {
			h = len(g.hosts)
			byHost[r.Host] = h
			g.hosts = append(g.hosts, nil)
		}
		if rank == g.comm.Rank() {
			g.host, g.index = h, len(g.hosts[h])
		}
		g.hosts[h] = append(g.hosts[h], rank)
	}
	g.inOrder = true
	for h, ranks := range g.hosts {
		for i, rank := range ranks {
			g.inOrder = g.inOrder && rank == h*len(ranks)+i
		}
	}
}

// methodOf returns the method of a host, and the reason for not using NCCL.
func (g *Group) methodOf(ranks []int, reports []report) (method, reason string) {
	method = "peer"
	owners := make(map[[16]byte]int)
	for _, rank := range ranks {
		r, first := reports[rank], reports[ranks[0]]
		if r.Peer == 0 {
			method = "host"
		}
		other, shared := owners[r.UUID]
		owners[r.UUID] = rank
		switch {
		case reason != "":
		case r.GPU == 0 || r.Version == 0:
			reason = fmt.Sprintf("rank %d has no GPU or no NCCL", rank)
		case r.Version != first.Version:
			reason = fmt.Sprintf("rank %d has NCCL %s, and rank %d has %s", rank, versionText(int(r.Version)), ranks[0], versionText(int(first.Version)))
		case shared && r.UUID != [16]byte{} && !g.cfg.sameGPU:
			reason = fmt.Sprintf("ranks %d and %d have the same GPU", other, rank)
		}
	}
	if reason == "" {
		method = "nccl"
	}
	return method, reason
}

// connect creates the NCCL communicator of the host.
func (g *Group) connect(ctx context.Context) error {
	ids := make([]uniqueID, 1)
	var made error
	if g.index == 0 {
		made = g.gpu.Do(ctx, "ncclGetUniqueId", func() (err error) {
			ids[0], err = g.lib.newID()
			return err
		})
		if made != nil {
			ids[0] = uniqueID{}
		}
	}
	if err := nexar.Broadcast(ctx, g.local, ids, 0); err != nil {
		return err
	}
	if ids[0] == (uniqueID{}) {
		return cmp.Or(made, fmt.Errorf("rank %d has no id of a communicator", g.hosts[g.host][0]))
	}
	return g.guarded(ctx, func(ctx context.Context) error {
		err := g.gpu.Do(ctx, "ncclCommInitRank", func() error {
			made, err := g.lib.create(len(g.hosts[0]), g.index, ids[0])
			defer runtime.KeepAlive(made)
			g.mu.Lock()
			ended := g.err
			if ended == nil {
				g.nccl, g.made = made.comm, made
			}
			g.mu.Unlock()
			if ended != nil && made.comm != 0 { // Nothing waits for this call any more.
				return errors.Join(ended, g.lib.call("ncclCommAbort", made.comm, made.comm))
			}
			return err
		})
		if err == nil {
			err = g.settle(ctx)
		}
		return err
	})
}

// text is a string of up to 200 bytes that ranks exchange.
type text [200]byte

func textOf(err error) (t text) {
	if err != nil {
		copy(t[:], err.Error())
	}
	return t
}

func (t text) String() string { return strings.TrimRight(string(t[:]), "\x00") }
