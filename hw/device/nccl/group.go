// Package nccl reduces vectors on GPUs among the ranks of a host by NCCL, and among hosts by nexar.
//
//	group, err := nccl.New(ctx, comm, stream, nccl.Config{})
//	…
//	defer group.Close()
//	err = group.AllReduce(ctx, device.Float32, device.Whole(gradient), nexar.Sum)
//
// A large all-reduce is a reduce-scatter inside each host, an all-reduce of each share among the
// hosts, with all ranks of a host at the same time, and an all-gather inside each host. All ranks get
// the same bits. A [Batch] performs several calls together.
//
// # Inside a host
//
// All ranks of the communicator call New, and decide alike. Each host uses the first of these that it can,
// and [Group.Inside] says which:
//
//   - "nccl": each rank has a GPU of its own (package device/cuda), and all have the same version of NCCL;
//   - "peer": each rank has a GPU, and the GPUs can access each other's memory (the CUDA driver's IPC, for
//     ranks in several processes). Kernels reduce, in the order of the ranks, without memory of the host;
//   - "host": nexar, through memory of the host, as for ranks without a GPU.
//
// [Group.Reason] says why a host does not use NCCL. A Group needs hosts with the same number of ranks, more
// than one, and at least one host with GPUs; and nexar.Config.Deterministic must not be set
// ([nexar.Comm.Deterministic]), since NCCL has no fixed order of operands. Otherwise the Group works like
// [nexar.DeviceComm]. If a host uses NCCL, so do types and operations that NCCL lacks or defines in another
// way: integers of 16 bits, floats of 8 bits, complex numbers other than sums, bit operations, and Min and Max of floats, since
// NCCL may drop a NaN.
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
	"runtime"
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

	// Timeout bounds a whole call that uses NCCL or peer access. The default is 5 min. In other calls
	// nexar.Config.CollectiveTimeout of the node bounds the time without progress.
	Timeout time.Duration

	// ExchangeBuffer is the memory of the GPU, in bytes, that the other ranks of the host read if the host
	// uses peer access. The default is 32 MiB. If it is negative on one rank, its host does not use peer access.
	ExchangeBuffer int

	// Host names the host of this rank, if ranks of one machine are to be different hosts, as in tests.
	// All ranks set it, or none: the default are the hosts that [nexar.Comm.LocalRanks] finds.
	Host string

	sameGPU bool // ranks of one host may have the same GPU, for tests
}

// ErrAborted: an earlier call of the Group has failed.
var ErrAborted = errors.New("the group is aborted")

// A Group is a communicator that uses NCCL, or direct access between GPUs, inside hosts. Its calls are made in the same order on all
// ranks, one at a time, in order with the collectives of its communicator.
type Group struct {
	comm   *nexar.Comm // a duplicate
	stream device.Stream
	cfg    Config
	reason string // why this host does not use NCCL

	inside       inside // nil if all methods are those of DeviceComm
	limited      bool   // a host uses NCCL, which lacks types and operations
	lib          *library
	gpu          *cuda.Device // nil if the stream is not of a GPU
	handle       uintptr      // of the stream
	local, cross *nexar.Comm
	hosts        [][]int // ranks, by host and local rank
	host, index  int     // of this rank
	inOrder      bool    // rank = host · ranks of a host + local rank
	scratch      device.Buffer

	mu   sync.Mutex
	nccl uintptr   // the communicator; 0 after an abort
	made *creation // of the communicator
	err  error
}

// New creates a Group of the ranks of a communicator, which all call it. Stream is of the device with the
// vectors of this rank, which may be the host. The Group queues work on it; it belongs to the caller.
func New(ctx context.Context, c *nexar.Comm, stream device.Stream, cfg Config) (*Group, error) {
	cfg.Library = cmp.Or(cfg.Library, LibraryName)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Minute)
	cfg.ExchangeBuffer = cmp.Or(cfg.ExchangeBuffer, 32<<20)
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

// Reason returns why the host of this rank does not use NCCL, or "". It is the same on all ranks of the host, except that
// a rank adds the error that it has met itself.
func (g *Group) Reason() string { return g.reason }

// Inside returns how the ranks of this host exchange data: "nccl", "peer" or "host", or "" if all methods
// are those of [nexar.DeviceComm].
func (g *Group) Inside() string {
	if g.inside == nil {
		return ""
	}
	return g.inside.name()
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
	var states sync.WaitGroup
	defer states.Wait()
	states.Go(func() { g.watchState(ctx, cancel) })
	select {
	case <-g.comm.Done():
		cancel(g.comm.Err())
	case <-g.local.Done():
		cancel(g.local.Err())
	case <-g.cross.Done():
		cancel(g.cross.Err())
	case <-ctx.Done():
	}
}

// watchState cancels a call when NCCL reports an error. It waits for the thread of the GPU. That may be in a call of the
// driver that waits for NCCL.
func (g *Group) watchState(ctx context.Context, cancel context.CancelCauseFunc) {
	const interval = 20 * time.Millisecond
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
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
// heartbeat timeout, and its rank has another number in a part. If it does not know within that and 4 s, the call ends with err.
func (g *Group) awaitCause(ctx context.Context, err error) {
	const more = 4 * time.Second // the failure has to spread, and abort takes up to a second
	e, ok := errors.AsType[*Error](err)
	remote := ok && (e.Code == remoteError || e.Code == systemError || e.Code == internalError)
	if !remote && g.local.Err() == nil && g.cross.Err() == nil {
		return
	}
	timer := time.NewTimer(g.comm.HeartbeatTimeout() + more)
	defer timer.Stop()
	select {
	case <-g.comm.Done():
	case <-ctx.Done():
	case <-timer.C:
	}
}

// state returns that of the NCCL communicator.
func (g *Group) state(ctx context.Context) (busy bool, err error) {
	if g.Inside() != "nccl" {
		return false, nil
	}
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

// abort tells the other ranks why the Group has failed, and ends the NCCL communicator and its work.
func (g *Group) abort(why error) {
	g.mu.Lock()
	comm := g.nccl
	g.nccl = 0
	if g.err == nil {
		g.err = fmt.Errorf("%w after: %w", ErrAborted, why)
	}
	g.mu.Unlock()
	// First, since NCCL may wait for the others. A collective whose context has ended revokes the communicator on all
	// ranks, with the cause.
	ended, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	for _, c := range []*nexar.Comm{g.comm, g.local, g.cross} {
		if c.Err() == nil {
			_ = c.Barrier(ended)
		}
	}
	if comm != 0 {
		g.abortComm(comm)
	}
}

// abortComm ends an NCCL communicator and its work, not on the thread of the GPU, where a call of NCCL may wait for the others.
// Calls there that do not wait end first, since the abort frees the communicator.
func (g *Group) abortComm(comm uintptr) {
	defer runtime.KeepAlive(g) // the creation may still use its memory
	const limit = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = g.gpu.Do(ctx, "the end of calls of NCCL", func() error { return nil })
	_ = g.lib.call("ncclCommAbort", comm, comm)
}

// destroy ends an NCCL communicator, for which NCCL may wait for the other ranks of the host, or aborts it if one of them has
// failed or left.
func (g *Group) destroy(comm uintptr) error {
	for _, c := range []*nexar.Comm{g.comm, g.local, g.cross} {
		if c.Err() != nil {
			g.abortComm(comm)
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), destroyLimit)
	defer cancel()
	return g.gpu.Do(ctx, "ncclCommDestroy", func() error { return g.lib.call("ncclCommDestroy", comm, comm) })
}

// destroyLimit bounds the time that Close waits for the other ranks of the host.
const destroyLimit = 30 * time.Second

// Close ends the use of the Group, after its last call. NCCL may wait for the other ranks of the host to close theirs, for up to 30 s.
// With peer access it waits up to 1 s until they no longer map the memory of this one. If they still do,
// the memory is freed with the device.
func (g *Group) Close() error {
	g.mu.Lock()
	comm := g.nccl
	g.nccl = 0
	g.err = cmp.Or(g.err, errClosed)
	g.mu.Unlock()
	var errs []error
	if comm != 0 {
		errs = append(errs, g.destroy(comm))
	}
	if p, ok := g.inside.(*peers); ok {
		errs = append(errs, p.close())
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
