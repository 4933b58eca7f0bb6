// Package nccl reduces vectors on GPUs among the ranks of a host by NCCL, and among hosts by nexar.
//
//	group, err := nccl.New(ctx, comm, stream, nccl.Config{})
//	…
//	defer group.Close()
//	err = group.AllReduce(ctx, device.Float32, device.Whole(gradient), nexar.Sum)
//
// A large all-reduce is a reduce-scatter inside each host by NCCL, an all-reduce of each share among the
// hosts, with all ranks of a host at the same time, and an all-gather inside each host. All ranks get
// the same bits.
//
// # When it is used
//
// All ranks of the communicator call New. NCCL is used if every host has as many ranks as the others,
// more than one, each rank has a GPU of its own (package device/cuda) and the same version of NCCL, and
// [Config].Deterministic is not set. Otherwise all methods are those of [nexar.DeviceComm], with the same
// results: [Group.Reason] says why. So they are for types and operations that NCCL does not have, or
// defines in another way: integers of 16 bits, complex numbers other than sums, bit operations, and Min
// and Max of floats, since NCCL may drop a NaN.
//
// # Failure
//
// If a rank fails, its call ends, or NCCL reports an error, the NCCL communicator is aborted, so that no
// rank waits for long: all later calls of the Group fail. Close it, and create another one on the
// communicator of the next epoch.
package nccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// A Config configures a [Group]. The zero value is ready to use.
type Config struct {
	// Library is the file name of NCCL. The default is libnccl.so.2.
	Library string

	// Timeout bounds a call. The default is 5 min.
	Timeout time.Duration

	// Deterministic says that results must not depend on the placement of ranks. Then NCCL is
	// not used. Set it as that of the node.
	Deterministic bool

	// Host names the host of this rank, if ranks of one machine are to be different hosts, as in tests.
	// All ranks set it, or none: the default are the hosts that [nexar.Comm.LocalRanks] finds.
	Host string

	sameGPU bool // ranks of one host may have the same GPU, for tests
}

// ErrAborted: an earlier call of the Group has failed.
var ErrAborted = errors.New("the NCCL communicator is aborted")

// A Group is a communicator that uses NCCL inside hosts. Its calls are made in the same order on all
// ranks, one at a time, in order with the collectives of its communicator.
type Group struct {
	comm   *nexar.Comm // a duplicate
	stream device.Stream
	cfg    Config
	reason string // why NCCL is not used

	lib          *library
	gpu          *cuda.Device
	handle       uintptr // of the stream
	local, cross *nexar.Comm
	hosts        [][]int // ranks, by host and local rank
	host, index  int     // of this rank
	scratch      device.Buffer

	mu   sync.Mutex
	nccl uintptr // the communicator; 0 after an abort
	err  error
}

// A report describes a rank to the others.
type report struct {
	Usable, Version int32
	UUID            [16]byte
	Host            [64]byte
}

// New creates a Group of the ranks of a communicator, which all call it. Stream is of the device with the
// vectors of this rank. The Group queues work on it; it belongs to the caller. A rank without a GPU
// or without NCCL takes part, and then NCCL is not used.
func New(ctx context.Context, c *nexar.Comm, stream device.Stream, cfg Config) (*Group, error) {
	cfg.Library = cmp.Or(cfg.Library, LibraryName)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Minute)
	own, err := c.Dup(ctx)
	if err != nil {
		return nil, fmt.Errorf("nccl: %w", err)
	}
	g := &Group{comm: own, stream: stream, cfg: cfg}
	if err := g.agree(ctx); err != nil {
		_ = g.Close()
		return nil, fmt.Errorf("nccl: %w", err)
	}
	return g, nil
}

// Reason returns why NCCL is not used, the same on all ranks but for errors of this one, or "".
func (g *Group) Reason() string { return g.reason }

// agree decides on all ranks whether NCCL is used, and creates the communicators.
func (g *Group) agree(ctx context.Context) error {
	own, why := g.inspect()
	reports := make([]report, g.comm.Size())
	if err := nexar.AllGather(ctx, g.comm, reports, []report{own}); err != nil {
		return err
	}
	if g.reason = g.decide(reports); g.reason != "" {
		if why != nil {
			g.reason += ": " + why.Error()
		}
		return nil
	}
	var err error
	if g.local, err = g.comm.Split(ctx, g.host, g.comm.Rank()); err != nil {
		return err
	}
	if g.cross, err = g.comm.Split(ctx, g.index, g.host); err != nil {
		return err
	}
	return g.connect(ctx)
}

// inspect describes this rank.
func (g *Group) inspect() (r report, why error) {
	host := g.cfg.Host
	if host == "" {
		host = fmt.Sprint("rank ", g.comm.LocalRanks()[0])
	}
	copy(r.Host[:], host)
	gpu, ok := g.stream.Device().(*cuda.Device)
	if !ok {
		return r, fmt.Errorf("the device of rank %d is %s, not a GPU", g.comm.Rank(), g.stream.Device().Name())
	}
	var err error
	if g.lib, err = open(g.cfg.Library); err != nil {
		return r, err
	}
	if g.handle, err = cuda.Handle(g.stream); err != nil {
		return r, err
	}
	g.gpu = gpu
	r.Usable, r.Version, r.UUID = 1, int32(g.lib.version), gpu.Info().UUID
	if g.cfg.Deterministic {
		r.Usable = 2
	}
	return r, nil
}

// decide returns why NCCL is not used, from the same reports on all ranks.
func (g *Group) decide(reports []report) (reason string) {
	byHost := make(map[[64]byte]int)
	for rank, r := range reports {
		switch {
		case r.Usable == 0:
			return fmt.Sprintf("rank %d has no GPU or no NCCL", rank)
		case r.Usable == 2:
			return fmt.Sprintf("rank %d is deterministic", rank)
		case r.Version != reports[0].Version:
			return fmt.Sprintf("rank %d has NCCL %s, and rank 0 %s", rank, versionText(int(r.Version)), versionText(int(reports[0].Version)))
		}
		h, ok := byHost[r.Host]
		if !ok {
			h = len(g.hosts)
			byHost[r.Host] = h
			g.hosts = append(g.hosts, nil)
		}
		for _, other := range g.hosts[h] {
			if reports[other].UUID == r.UUID && r.UUID != ([16]byte{}) && !g.cfg.sameGPU {
				return fmt.Sprintf("ranks %d and %d have the same GPU", other, rank)
			}
		}
		if rank == g.comm.Rank() {
			g.host, g.index = h, len(g.hosts[h])
		}
		g.hosts[h] = append(g.hosts[h], rank)
	}
	for h, ranks := range g.hosts {
		if len(ranks) != len(g.hosts[0]) {
			return fmt.Sprintf("the host of rank %d has %d ranks, and that of rank 0 has %d", g.hosts[h][0], len(ranks), len(g.hosts[0]))
		}
	}
	if len(g.hosts[0]) == 1 {
		return "each host has one rank"
	}
	return ""
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
			comm, err := g.lib.create(len(g.hosts[0]), g.index, ids[0])
			g.mu.Lock()
			defer g.mu.Unlock()
			g.nccl = comm
			return err
		})
		if err == nil {
			err = g.settle(ctx)
		}
		return err
	})
}

// guarded calls f with a context that also ends when a rank of the Group fails, when NCCL reports an error,
// and after the timeout. If f fails, NCCL is aborted.
func (g *Group) guarded(ctx context.Context, f func(ctx context.Context) error) error {
	g.mu.Lock()
	earlier := g.err
	g.mu.Unlock()
	if earlier != nil {
		return earlier
	}
	bounded, stop := context.WithTimeoutCause(ctx, g.cfg.Timeout, fmt.Errorf("the call takes longer than the timeout %v", g.cfg.Timeout))
	defer stop()
	ctx, cancel := context.WithCancelCause(bounded)
	var watch sync.WaitGroup
	watch.Go(func() { g.watch(ctx, cancel) })
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		g.awaitCause(bounded, err)
	}
	cancel(nil)
	watch.Wait()
	if err == nil {
		return nil
	}
	// The error of the communicator names the rank that has failed.
	for _, c := range []*nexar.Comm{g.comm, g.local, g.cross} {
		if ended := c.Err(); ended != nil {
			err = ended
			break
		}
	}
	g.abort(err)
	return err
}

// watch cancels a call when a communicator ends, or NCCL reports an error.
func (g *Group) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	const interval = 20 * time.Millisecond
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-g.comm.Done():
			cancel(g.comm.Err())
		case <-g.local.Done():
			cancel(g.local.Err())
		case <-g.cross.Done():
			cancel(g.cross.Err())
		case <-ctx.Done():
			return
		case <-ticks.C:
			if _, err := g.state(ctx); err != nil && ctx.Err() == nil {
				g.awaitCause(ctx, err)
				cancel(err)
			}
		}
	}
}

// awaitCause waits after an error of NCCL or of a part of the communicator until the whole communicator has ended, or
// ctx. NCCL often notices first that the process of a rank has ended, but only nexar knows which one, within the
// heartbeat timeout, and its rank has another number in a part.
func (g *Group) awaitCause(ctx context.Context, err error) {
	const limit = 10 * time.Second
	e, ok := errors.AsType[*Error](err)
	remote := ok && (e.Code == remoteError || e.Code == systemError || e.Code == internalError)
	if !remote && g.local.Err() == nil && g.cross.Err() == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-g.comm.Done():
	case <-ctx.Done():
	case <-timer.C:
	}
}

// state returns that of the NCCL communicator.
func (g *Group) state(ctx context.Context) (busy bool, err error) {
	err = g.gpu.Do(ctx, "ncclCommGetAsyncError", func() (err error) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.nccl != 0 {
			busy, err = g.lib.asyncError(g.nccl)
		}
		return err
	})
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return busy, err
}

// settle waits until the last call of NCCL has ended, which may continue in the background. That is not
// the end of its work.
func (g *Group) settle(ctx context.Context) error {
	const shortest, longest = 20 * time.Microsecond, time.Millisecond
	for pause := shortest; ; pause = min(2*pause, longest) {
		busy, err := g.state(ctx)
		if err != nil || !busy {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// queue makes calls of NCCL on the thread of the GPU, and waits until they are queued.
func (g *Group) queue(ctx context.Context, what string, calls func(comm uintptr) error) error {
	err := g.gpu.Do(ctx, what, func() error {
		g.mu.Lock()
		comm := g.nccl
		g.mu.Unlock()
		if comm == 0 {
			return ErrAborted
		}
		return calls(comm)
	})
	if err == nil {
		err = g.settle(ctx)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return fmt.Errorf("device %s: %w", g.gpu.Name(), e)
	}
	return err
}

// grouped makes several calls as a group of NCCL, which performs them at the same time.
func (g *Group) grouped(ctx context.Context, what string, calls func(comm uintptr) error) error {
	return g.queue(ctx, what, func(comm uintptr) error {
		if err := g.lib.call("ncclGroupStart", comm); err != nil {
			return err
		}
		err := calls(comm)
		return errors.Join(err, g.lib.call("ncclGroupEnd", comm))
	})
}

// abort ends the NCCL communicator and its work, and tells the other ranks.
func (g *Group) abort(why error) {
	g.mu.Lock()
	comm := g.nccl
	g.nccl = 0
	if g.err == nil {
		g.err = fmt.Errorf("%w after: %w", ErrAborted, why)
	}
	g.mu.Unlock()
	if comm != 0 {
		// Not on the thread of the GPU, where a call of NCCL may wait for the others.
		_ = g.lib.call("ncclCommAbort", comm, comm)
	}
	if g.comm.Err() != nil {
		return // the other ranks know the cause, which a Close could hide
	}
	for _, c := range []*nexar.Comm{g.local, g.cross, g.comm} {
		_ = c.Close()
	}
}

// Close ends the use of the Group, after its last call. It does not wait for other ranks.
func (g *Group) Close() error {
	g.mu.Lock()
	comm := g.nccl
	g.nccl = 0
	g.err = cmp.Or(g.err, errClosed)
	g.mu.Unlock()
	var errs []error
	if comm != 0 {
		errs = append(errs, g.gpu.Do(context.Background(), "ncclCommDestroy", func() error { return g.lib.call("ncclCommDestroy", comm, comm) }))
	}
	if g.scratch != nil {
		errs = append(errs, g.scratch.Free())
		g.scratch = nil
	}
	for _, c := range []*nexar.Comm{g.local, g.cross, g.comm} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}

var errClosed = errors.New("nccl: the group is closed")
