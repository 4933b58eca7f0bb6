package devicetest

import (
	"cmp"
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

// A FakeConfig configures a [Fake]. The zero value is ready to use.
type FakeConfig struct {
	// Name is the name of the device. The default is "fake".
	Name string

	// Memory and StagingMemory bound the bytes of all buffers and of all stagings. The
	// default is 256 MiB each.
	Memory, StagingMemory int

	// DelayMax bounds the delay of queued work, which is random and depends on Seed. The
	// default is 100 µs; negative means no delay.
	DelayMax time.Duration

	// Seed determines the delays and the scrambling of memory.
	Seed uint64
}

// A Fake is a device for tests of code that uses package device. It differs from the memory of the
// host as far as the contract allows:
//
//   - Its memory is scrambled, so that accesses other than by its methods read and write garbage.
//     It is not a device.Mapper, and its streams are not device.Reducers.
//   - A goroutine for each stream does the work, after a random delay.
//   - New memory contains garbage, as does staging memory from when work that fills it is queued
//     until that is done, and after Free.
//   - A write to staging memory that the device owns, or that is freed, is a misuse, and so are
//     buffers, stagings and streams that are not freed or closed. Close reports them.
//
// It counts copies (Stats), injects failures (it is a [Failer]), and can be paused (it is a
// [Holder]).
type Fake struct {
	name string
	cfg  FakeConfig
	sums maphash.Seed // of staging memory

	running sync.WaitGroup // the goroutines of streams

	mu       sync.Mutex
	closed   bool
	held     int           // calls of Hold that are not released
	resumed  chan struct{} // closed when held becomes 0
	freed    chan struct{} // closed and replaced when memory is freed
	failures map[int]error // by number of the copy
	copies   int           // begun or queued
	stats    Stats
	memory   pool // of buffers
	staging  pool
	alive    map[any]*mark // buffers, stagings and streams not freed or closed
	made     int           // buffers and streams so far
	remains  remains
	misuses  []string
}

var (
	_ device.Device = (*Fake)(nil)
	_ Holder        = (*Fake)(nil)
	_ Failer        = (*Fake)(nil)
)

// A pool counts the bytes of buffers or stagings.
type pool struct {
	what  string
	total int
	used  int
	going int // the part of used that is freed, but that queued work still uses
}

// NewFake returns a Fake that is closed when tb ends. tb fails if Close reports an error.
func NewFake(tb testing.TB, cfg FakeConfig) *Fake {
	const memory = 256 << 20
	cfg.Name = cmp.Or(cfg.Name, "fake")
	cfg.Memory = cmp.Or(cfg.Memory, memory)
	cfg.StagingMemory = cmp.Or(cfg.StagingMemory, memory)
	cfg.DelayMax = cmp.Or(cfg.DelayMax, 100*time.Microsecond)
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

// Name returns the name of the FakeConfig.
func (f *Fake) Name() string { return f.name }

// Alloc returns a buffer with random contents.
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

// Stage returns staging memory with invalid contents.
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

// reserve counts bytes of a pool as used. It waits for memory that is freed and still in use.
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
			f.stats.MemoryMost = max(f.stats.MemoryMost, f.memory.used)
			f.stats.StagingMemoryMost = max(f.stats.StagingMemoryMost, f.staging.used)
			f.mu.Unlock()
			return nil
		case bytes > left+p.going:
			f.mu.Unlock()
			return &device.MemoryError{Device: f.name, What: p.what, Requested: bytes, Free: int64(left), Total: int64(p.total)}
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

// free marks memory of a pool as freed. Queued work may still use it.
func (f *Fake) free(memory interface{ endIfUnused() }, p *pool, freed *bool, bytes int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case *freed:
		return f.errFreed(p.what, bytes)
	case f.closed:
		return f.errClosed("device")
	}
	*freed = true
	delete(f.alive, memory)
	p.going += bytes
	memory.endIfUnused()
	return nil
}

// release reverts reserve. f.mu is held.
func (f *Fake) release(p *pool, bytes int) {
	p.used -= bytes
	p.going -= bytes
	close(f.freed)
	f.freed = make(chan struct{})
}

// CopyIn copies src to dst.
func (f *Fake) CopyIn(ctx context.Context, dst device.Region, src []byte) error {
	return f.copyNow(ctx, dst, "src", len(src), func() {
		copyIn(src, dst)
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

// copyNow copies to or from r. It keeps the memory of r in use, as queued work does.
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

// use keeps the memory of the buffers of checked regions from being released. f.mu is held.
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

// unuse reverts use. f.mu is held.
func (f *Fake) unuse(buffers []*buffer) {
	for _, b := range buffers {
		b.users--
		b.endIfUnused()
	}
}

// FailCopy implements [Failer]. It counts calls of CopyIn, CopyOut, StageSend, ReceiveInto and Copy
// with valid arguments.
func (f *Fake) FailCopy(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures[f.copies+n] = err
}

// nextFailure counts a copy and returns its injected error, or nil. f.mu is held.
func (f *Fake) nextFailure() error {
	f.copies++
	return f.failures[f.copies]
}

// Hold implements [Holder]. Work that has begun continues, and CopyIn and CopyOut are not affected.
// After several calls all must be released.
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

// awaitRelease waits until f is not held or is closed.
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

// Close closes the device: it does all queued work, even if the device is held, and further calls
// fail. It returns an error that lists each misuse, and each buffer, staging and stream that is not
// freed or closed, with the stack of its creation. Later calls return nil.
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

// misuse records an error of the caller for Close. f.mu is held.
func (f *Fake) misuse(format string, args ...any) {
	f.misuses = append(f.misuses, fmt.Sprintf(format, args...))
}

func (f *Fake) errFreed(what string, bytes int) error {
	return fmt.Errorf("device %s: %s of %d bytes: %w", f.name, what, bytes, device.ErrFreed)
}

func (f *Fake) errClosed(what string) error {
	return fmt.Errorf("device %s: %s: %w", f.name, what, device.ErrClosed)
}
