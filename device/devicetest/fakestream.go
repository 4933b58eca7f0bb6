package devicetest

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nexar-go/nexar/device"
)

// A stream does work in order. Its goroutine runs while the queue is not empty.
type stream struct {
	fake *Fake
	rng  *rand.Rand // used by the goroutine

	// Guarded by fake.mu.
	queue  []*work
	last   *work // the last queued work, done or not
	active bool  // the goroutine runs
	closed bool
	err    error
}

// work is a queued copy.
type work struct {
	name    string
	copy    func()
	count   func(*Stats)
	failure error // injected, or nil
	buffers []*buffer

	// The staging memory in use, if any: host begins at offset at.
	staging *staging
	at      int
	host    []byte
	fills   bool   // the copy writes to host
	guarded bool   // host must not change before the copy
	sum     uint64 // hash of host, if the copy reads it

	done chan struct{}
	err  error // valid when done is closed
}

// NewStream returns a stream with a goroutine that does its work.
func (f *Fake) NewStream() (device.Stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, f.errClosed("device")
	}
	f.made++
	s := &stream{fake: f, rng: rand.New(rand.NewPCG(f.cfg.Seed, uint64(f.made)))}
	f.alive[s] = newMark("stream", 0)
	return s, nil
}

func (s *stream) Device() device.Device { return s.fake }

func (s *stream) StageSend(dst device.Staging, at int, src ...device.Region) error {
	w := &work{name: "StageSend", fills: true}
	w.count = func(s *Stats) { s.CopiesOut++; s.BytesOut += int64(len(w.host)) }
	return s.addStaged(w, dst, at, src, copyOut)
}

func (s *stream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	w := &work{name: "ReceiveInto"}
	w.count = func(s *Stats) { s.CopiesIn++; s.BytesIn += int64(len(w.host)) }
	return s.addStaged(w, src, at, dst, copyIn)
}

// addStaged queues work that copies between staging memory from at on and regions. copyRegion copies between the beginning
// of host and a region, and returns the rest of host.
func (s *stream) addStaged(w *work, st device.Staging, at int, list []device.Region, copyRegion func(host []byte, r device.Region) []byte) error {
	regions := slices.Clone(list)
	bytes, err := device.Check(s.fake, regions...)
	if err == nil {
		err = device.CheckStaging(s.fake, st, at, bytes)
	}
	if err != nil {
		return err
	}
	w.name, w.at = fmt.Sprintf("%s of %d bytes", w.name, bytes), at
	w.copy = func() {
		rest := w.host
		for _, r := range regions {
			rest = copyRegion(rest, r)
		}
	}
	return s.add(w, st, bytes, regions...)
}

func (s *stream) Copy(dst, src device.Region) error {
	if err := device.CheckPair(s.fake, dst, src); err != nil {
		return err
	}
	bytes := dst.Total()
	w := &work{name: fmt.Sprintf("Copy of %d bytes", bytes)}
	w.copy = func() {
		row := make([]byte, dst.Bytes)
		for i := range dst.RowCount() {
			src.Buffer.(*buffer).read(row, src.RowAt(i))
			dst.Buffer.(*buffer).write(dst.RowAt(i), row)
		}
	}
	w.count = func(s *Stats) { s.CopiesWithin++; s.BytesWithin += int64(bytes) }
	return s.add(w, nil, 0, dst, src)
}

// add queues work, with a number of bytes of st unless that is nil.
func (s *stream) add(w *work, st device.Staging, bytes int, regions ...device.Region) error {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := s.check(); err != nil {
		return err
	}
	if st != nil {
		own, ok := st.(*staging)
		if !ok {
			return &device.ForeignError{Device: f.name, Owner: fmt.Sprintf("%T", st), What: "staging"}
		}
		if err := own.check(); err != nil {
			return err
		}
		w.staging, w.host = own, own.mem[w.at:w.at+bytes]
	}
	var err error
	if w.buffers, err = f.use(regions...); err != nil {
		return err
	}
	w.failure = f.nextFailure()
	w.done = make(chan struct{})
	if w.staging != nil {
		w.guard(f)
		w.staging.queue = append(w.staging.queue, w)
	}
	s.queue = append(s.queue, w)
	s.last = w
	if !s.active {
		s.active = true
		f.running.Go(s.run)
	}
	return nil
}

// guard transfers the staging memory to the device: it overwrites memory that will be filled, and
// records memory that will be read.
func (w *work) guard(f *Fake) {
	if w.staging.busy(w.at, len(w.host)) {
		return // earlier work changes or reads the bytes
	}
	w.guarded = true
	if w.fills {
		fill(w.host, pending)
	} else {
		w.sum = maphash.Bytes(f.sums, w.host)
	}
}

// intact reports whether the memory is unchanged since guard.
func (w *work) intact(f *Fake) bool {
	switch {
	case !w.guarded:
		return true
	case w.fills:
		return holds(w.host, pending)
	}
	return w.sum == maphash.Bytes(f.sums, w.host)
}

// run does work until the queue is empty.
func (s *stream) run() {
	f := s.fake
	for {
		f.awaitRelease()
		f.mu.Lock()
		if len(s.queue) == 0 {
			s.active = false
			f.mu.Unlock()
			return
		}
		w, failed := s.queue[0], s.err
		s.queue = s.queue[1:]
		f.mu.Unlock()

		if failed == nil {
			if most := f.cfg.DelayMax; most > 0 {
				time.Sleep(time.Duration(s.rng.Int64N(int64(most))))
			}
			intact := w.intact(f)
			if w.failure == nil {
				w.copy()
			} else {
				failed = &device.StreamError{Device: f.name, Work: w.name, Err: w.failure}
			}
			s.finish(w, intact, failed)
		} else {
			s.finish(w, true, failed)
		}
	}
}

// finish records that work is done, or that it failed with err.
func (s *stream) finish(w *work, intact bool, err error) {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if !intact {
		f.misuse("write to a staging of %d bytes while the device owned it: %s was queued", len(w.staging.mem), w.name)
	}
	w.err = err
	if err == nil {
		w.count(&f.stats)
	} else if s.err == nil {
		s.err = err
	}
	if st := w.staging; st != nil {
		st.queue = slices.DeleteFunc(st.queue, func(other *work) bool { return other == w })
		if st.err == nil {
			st.err = err
		}
		st.endIfUnused()
	}
	f.unuse(w.buffers)
	close(w.done)
}

// wait waits until the work is done, and returns its error.
func (w *work) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return w.err
	default:
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// check returns an error if work cannot be queued. fake.mu is held.
func (s *stream) check() error {
	switch {
	case s.fake.closed:
		return s.fake.errClosed("device")
	case s.closed:
		return s.fake.errClosed("stream")
	}
	return s.err
}

func (s *stream) Wait(ctx context.Context) error {
	s.fake.mu.Lock()
	err, last := s.check(), s.last
	s.fake.mu.Unlock()
	if err != nil || last == nil {
		return err
	}
	return last.wait(ctx)
}

func (s *stream) Close() error {
	f := s.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.errClosed("device")
	}
	if s.closed {
		return f.errClosed("stream")
	}
	s.closed = true
	delete(f.alive, s)
	return nil
}
