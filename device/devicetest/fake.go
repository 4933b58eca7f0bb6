package devicetest

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/device"
)

// A FakeConfig says what a Fake is like. The zero value is ready to be used.
type FakeConfig struct {
	// Name is that of the device. The default is "fake".
	Name string

	// Memory is how many bytes all buffers together may have, and StagingMemory
	// the same for staging memory. The default is 256 MiB.
	Memory, StagingMemory int

	// DelayMax is how long queued work may wait at the most before it is done.
	// How long it does wait is random, and depends on Seed. The default is
	// 100 µs; negative is no delay.
	DelayMax time.Duration

	// Seed makes the delays, and how memory is scrambled.
	Seed uint64
}

// A Fake is a device with which others test that they keep to the contract of
// package device. It behaves as differently from the memory of the host as a
// device may:
//
//   - Its memory holds every byte scrambled, so that whatever reaches it by
//     another way than its methods reads and writes garbage. It is neither a
//     device.Mapper nor a device.Reducer.
//   - The work of each stream is done by a goroutine of its own, some random
//     time after it was queued.
//   - New memory holds garbage. Staging memory does so, too, from when work that
//     is to fill it is queued until that is done, and after Free.
//   - A write to staging memory that belongs to the device, or was freed, is a
//     misuse. So is whatever was not freed or closed by the end. Close tells.
//
// It counts what is copied (Stats), can be made to fail (FailCopy: it is a
// Failer), and can be halted (Hold: it is a Holder).
type Fake struct {
	name string
	cfg  FakeConfig
	sums maphash.Seed // of staging memory

	running sync.WaitGroup // the goroutines of streams

	mu       sync.Mutex
	closed   bool
	held     int           // how often Hold was called, and not taken back
	resumed  chan struct{} // closed when held becomes 0
	freed    chan struct{} // closed, and made anew, when memory was freed
	failures map[int]error // by number of the copy
	copies   int           // begun or queued
	stats    Stats
	memory   pool // of buffers
	staging  pool
	alive    map[any]*mark // what is to be freed or closed
	made     int           // buffers, stagings and streams
	remains  remains
	misuses  []string
}

var (
	_ device.Device = (*Fake)(nil)
	_ Holder        = (*Fake)(nil)
	_ Failer        = (*Fake)(nil)
)

// A pool counts memory of one kind.
type pool struct {
	what  string
	total int
	used  int
	going int // of used: freed, but queued work still uses it
}

// NewFake makes a Fake. When tb ends it is closed, and what Close finds fails
// tb.
func NewFake(tb testing.TB, cfg FakeConfig) *Fake {
	const memory = 256 << 20
	if cfg.Name == "" {
		cfg.Name = "fake"
	}
	if cfg.Memory == 0 {
		cfg.Memory = memory
	}
	if cfg.StagingMemory == 0 {
		cfg.StagingMemory = memory
	}
	if cfg.DelayMax == 0 {
		cfg.DelayMax = 100 * time.Microsecond
	}
	f := &Fake{
		name: cfg.Name, cfg: cfg, sums: maphash.MakeSeed(),
		resumed:  make(chan struct{}),
		freed:    make(chan struct{}),
		failures: make(map[int]error),
		memory:   pool{what: "buffer", total: cfg.Memory},
		staging:  pool{what: "staging", total: cfg.StagingMemory},
		alive:    make(map[any]*mark),
	}
	tb.Cleanup(func() {
		if err := f.Close(); err != nil {
			tb.Errorf("devicetest: %v", err)
		}
	})
	return f
}

// Name is the name of the FakeConfig.
func (f *Fake) Name() string { return f.name }

// Alloc returns a buffer that holds garbage.
func (f *Fake) Alloc(ctx context.Context, bytes int) (device.Buffer, error) {
	if err := f.reserve(ctx, &f.memory, bytes); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	b := &buffer{fake: f, mem: make([]byte, bytes), salt: uint32(f.made)*0x9E3779B9 ^ uint32(f.cfg.Seed)}
	f.alive[b] = newMark("buffer", bytes)
	return b, nil
}

// Stage returns staging memory that holds garbage.
func (f *Fake) Stage(ctx context.Context, bytes int) (device.Staging, error) {
	if err := f.reserve(ctx, &f.staging, bytes); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &staging{fake: f, mem: aligned(bytes)}
	fill(s.mem, fresh)
	f.alive[s] = newMark("staging", bytes)
	return s, nil
}

// reserve counts bytes as used, or says why they cannot be had.
func (f *Fake) reserve(ctx context.Context, p *pool, bytes int) error {
	if bytes < 0 {
		return &device.LengthError{Device: f.name, What: p.what, Unit: "bytes", Got: bytes, Want: -1}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for {
		f.mu.Lock()
		left := p.total - p.used
		switch {
		case f.closed:
			f.mu.Unlock()
			return f.errClosed("device")
		case bytes <= left:
			p.used += bytes
			f.stats.peaks(f.memory.used, f.staging.used)
			f.mu.Unlock()
			return nil
		case bytes > left+p.going:
			f.mu.Unlock()
			return &device.MemoryError{Device: f.name, What: p.what, Asked: bytes, Free: int64(left), Total: int64(p.total)}
		}
		freed := f.freed
		f.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// release gives memory back that reserve has counted. f.mu is held.
func (f *Fake) release(p *pool, bytes int) {
	p.used -= bytes
	close(f.freed)
	f.freed = make(chan struct{})
}

// CopyIn copies src to dst.
func (f *Fake) CopyIn(ctx context.Context, dst device.Region, src []byte) error {
	return f.copyNow(ctx, dst, "src", len(src), func() {
		copyIn(dst, src)
		f.count(func(s *Stats) { s.CopiesIn++; s.BytesIn += int64(len(src)) })
	})
}

// CopyOut copies src to dst.
func (f *Fake) CopyOut(ctx context.Context, dst []byte, src device.Region) error {
	return f.copyNow(ctx, src, "dst", len(dst), func() {
		copyOut(dst, src)
		f.count(func(s *Stats) { s.CopiesOut++; s.BytesOut += int64(len(dst)) })
	})
}

// copyNow copies to or from r, with the memory of r held as if it was queued.
func (f *Fake) copyNow(ctx context.Context, r device.Region, what string, length int, do func()) error {
	bytes, err := device.Check(f, r)
	if err == nil {
		err = device.CheckLength(f, what, length, bytes)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f.mu.Lock()
	buffers, err := f.use(r)
	var failure error
	if err == nil {
		failure = f.nextFailure()
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if failure == nil {
		do()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unuse(buffers)
	if failure != nil {
		return fmt.Errorf("device %s: %w", f.name, failure)
	}
	return nil
}

// use keeps the buffers of regions, which device.Check has seen, from going
// away. f.mu is held.
func (f *Fake) use(regions ...device.Region) ([]*buffer, error) {
	if f.closed {
		return nil, f.errClosed("device")
	}
	buffers := make([]*buffer, len(regions))
	for i, r := range regions {
		b, ok := r.Buffer.(*buffer)
		if !ok {
			return nil, &device.ForeignError{Device: f.name, Owner: fmt.Sprintf("%T", r.Buffer), What: "buffer"}
		}
		if b.freed {
			return nil, f.errFreed("buffer", len(b.mem))
		}
		buffers[i] = b
	}
	for _, b := range buffers {
		b.users++
	}
	return buffers, nil
}

// unuse takes use back. f.mu is held.
func (f *Fake) unuse(buffers []*buffer) {
	for _, b := range buffers {
		b.users--
		b.endIfUnused()
	}
}

// FailCopy makes the n-th copy from now on fail with err; 1 is the next one.
// Counted are CopyIn, CopyOut, StageSend, ReceiveInto and Copy, those of
// streams when they are queued, if their arguments are right.
func (f *Fake) FailCopy(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures[f.copies+n] = err
}

// nextFailure counts a copy and returns the error with which it is to fail.
// f.mu is held.
func (f *Fake) nextFailure() error {
	f.copies++
	return f.failures[f.copies]
}

// Hold keeps work that is queued, or will be, from being done until the
// function that it returns is called. Work that has begun goes on. CopyIn and
// CopyOut are no queued work.
func (f *Fake) Hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held--
		if f.held == 0 {
			close(f.resumed)
			f.resumed = make(chan struct{})
		}
	})
}

// awaitRelease returns when nobody holds f, or f is being closed.
func (f *Fake) awaitRelease() {
	for {
		f.mu.Lock()
		resumed := f.resumed
		if f.held == 0 || f.closed {
			resumed = nil
		}
		f.mu.Unlock()
		if resumed == nil {
			return
		}
		<-resumed
	}
}

// Close ends the device: all work that is queued is done, also while it is
// held, and everything else fails from now on. It returns what was misused and
// what was left, each with the place in the code at which it was made; later
// calls return nil.
func (f *Fake) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	close(f.resumed)
	close(f.freed)
	f.resumed, f.freed = make(chan struct{}), make(chan struct{})
	f.mu.Unlock()
	f.running.Wait()

	f.mu.Lock()
	defer f.mu.Unlock()
	f.remains.checkAll(f.misuse)
	problems := slices.Clone(f.misuses)
	for _, m := range f.alive {
		problems = append(problems, m.String())
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return fmt.Errorf("device %s: %w", f.name, errors.New(strings.Join(problems, "\n")))
}

// misuse notes what a caller has done wrong. f.mu is held.
func (f *Fake) misuse(format string, args ...any) {
	f.misuses = append(f.misuses, fmt.Sprintf(format, args...))
}

func (f *Fake) errFreed(what string, bytes int) error {
	return fmt.Errorf("device %s: %s of %d bytes: %w", f.name, what, bytes, device.ErrFreed)
}

func (f *Fake) errClosed(what string) error {
	return fmt.Errorf("device %s: %s: %w", f.name, what, device.ErrClosed)
}
