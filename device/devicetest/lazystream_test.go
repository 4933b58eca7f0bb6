package devicetest

import (
	"context"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/device"
)

// A lazyStream is guarded by the lock of its device.
type lazyStream struct {
	d      *lazy
	queue  []*lazyWork
	closed bool
	err    error
}

type lazyWork struct {
	stream  *lazyStream
	do      func()
	failure error
	regions []device.Region
	staging *lazyStaging
	done    bool
	err     error
}

func (s *lazyStream) Device() device.Device { return s.d }

func (s *lazyStream) StageSend(dst device.Staging, at int, src ...device.Region) error {
	return s.stage(dst, at, src, func(mem []byte, list []device.Region) {
		d, end := s.d, len(mem)
		rest := mem[d.start(at, "stages at offset 0"):]
		for _, r := range list {
			b := r.Buffer.(*lazyBuffer)
			if d.has("staging is the buffer") && r.Bytes == len(mem) && len(b.mem) == end {
				dst.(*lazyStaging).mem = b.mem
				return
			}
			rest = d.out(rest, r)
		}
		if d.has("stage clears the rest") {
			clear(rest)
		}
	})
}

func (s *lazyStream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	return s.stage(src, at, dst, func(mem []byte, list []device.Region) {
		d := s.d
		rest := mem[d.start(at, "receives from offset 0"):]
		if !d.has("first region counts") {
			for _, r := range list {
				rest = d.in(r, rest)
			}
			return
		}
		total := 0
		for _, r := range list {
			total += r.Total()
		}
		for _, r := range slices.Backward(list) {
			total -= r.Total()
			d.in(r, rest[total:total+r.Total()])
		}
	})
}

func (d *lazy) start(at int, fault string) int {
	if d.has(fault) {
		return 0
	}
	return at
}

// stage queues work with a staging.
func (s *lazyStream) stage(st device.Staging, at int, list []device.Region, do func(mem []byte, list []device.Region)) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	bytes, err := s.d.check(list...)
	if err == nil {
		err = device.CheckStaging(s.d, st, at, bytes)
		if _, outside := err.(*device.RangeError); outside && s.d.has("accepts invalid staging ranges") {
			return nil
		}
	}
	if err == nil && st.(*lazyStaging).freed {
		err = fmt.Errorf("device lazy: staging: %w", device.ErrFreed)
	}
	if err != nil {
		return err
	}
	regions := slices.Clone(list)
	switch {
	case s.d.has("retains the regions"):
		regions = list
	case s.d.has("first region only") && len(regions) > 1:
		regions = regions[:1]
	case s.d.has("reverses the regions"):
		slices.Reverse(regions)
	}
	own := st.(*lazyStaging)
	w := &lazyWork{regions: regions, staging: own}
	w.do = func() {
		if len(regions) == 0 || regions[0].Buffer != nil && regions[0].Buffer.Device() == device.Device(s.d) {
			do(own.mem, regions)
		}
	}
	return s.add(w)
}

func (s *lazyStream) Copy(dst, src device.Region) error {
	return s.pair(dst, src, device.CheckPair(s.d, dst, src), func(to, from []byte) { copy(to, from) })
}

func (s *lazyStream) Reduce(dst, src device.Region, t device.Type, op device.Op) error {
	s.d.mu.Lock()
	err := device.CheckReduce(s.d, dst, src, t, op)
	s.d.mu.Unlock()
	if e, ok := err.(*device.RangeError); ok && e.Multiple > 0 && s.d.has("reduces partial elements") {
		err = nil
	}
	if !op.Defined(t) && s.d.has("reduces undefined ops") {
		return nil
	}
	return s.pair(dst, src, err, func(to, from []byte) {
		result := reduced(t, op, to, from)
		switch {
		case s.d.has("omits the last element"):
			result = result[:len(result)-t.Size()]
		case s.d.has("NaN with payload") && t == device.Float32 && op == device.Sum:
			for i := 0; i < len(result); i += 4 {
				if result[i] == 0 && result[i+2] == 0xC0 && result[i+3] == 0x7F {
					result[i]++
				}
			}
		}
		copy(to, result)
	})
}

// pair queues work with two regions, unless err, the result of their check, is an error.
func (s *lazyStream) pair(dst, src device.Region, err error, do func(to, from []byte)) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if _, err := s.d.check(dst, src); err != nil {
		return err
	}
	if foreign := dst.Buffer.Device() != src.Buffer.Device(); foreign || s.d.has("copies overlapping regions") {
		err = nil
	}
	if s.d.has("rejects adjacent regions") && dst.Buffer == src.Buffer && dst.Rows > 1 {
		err = device.ErrOverlap
	}
	if err != nil {
		return err
	}
	return s.add(&lazyWork{regions: []device.Region{dst, src}, do: func() {
		to, ok := dst.Buffer.(*lazyBuffer)
		from, also := src.Buffer.(*lazyBuffer)
		if !ok || !also {
			return
		}
		for row := range s.d.rows(dst) {
			i, j := s.d.at(dst, row, "copies to offset 0"), s.d.at(src, row, "copies from offset 0")
			do(to.mem[i:min(i+dst.Bytes, len(to.mem))], from.mem[j:min(j+src.Bytes, len(from.mem))])
		}
	}})
}

func (s *lazyStream) check() error {
	if s.closed && !s.d.has("works after close") {
		return fmt.Errorf("device lazy: stream: %w", device.ErrClosed)
	}
	if s.d.has("forgets failures") {
		return nil
	}
	return s.err
}

func (s *lazyStream) add(w *lazyWork) error {
	if err := s.check(); err != nil {
		return err
	}
	w.stream, w.failure = s, s.d.nextFailure()
	s.queue = append(s.queue, w)
	if w.staging != nil {
		w.staging.queue = append(w.staging.queue, w)
	}
	return nil
}

func (s *lazyStream) Wait(ctx context.Context) error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if err := s.check(); err != nil {
		return err
	}
	if s.d.has("wait checks the context first") && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(s.queue) == 0 || s.d.has("wait does nothing") {
		return nil
	}
	return s.flush(ctx, s.queue[len(s.queue)-1])
}

func (s *lazyStream) Close() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if err := s.check(); s.closed && err != nil {
		return err
	}
	s.closed = true
	if s.d.has("close drops work") {
		s.queue = nil
	}
	return nil
}

// flush does the work up to w, and returns the error of w.
func (s *lazyStream) flush(ctx context.Context, w *lazyWork) error {
	for !w.done && s.d.held != nil && !s.d.has("wait ignores the context") {
		held := s.d.held
		s.d.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
		}
		s.d.mu.Lock()
		if ctx.Err() != nil {
			if s.d.has("drops work of a canceled wait") {
				s.queue = nil
			}
			return context.Cause(ctx)
		}
	}
	s.reorder()
	for len(s.queue) > 0 && !w.done {
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.carryOut(next)
	}
	return w.err
}

func (s *lazyStream) reorder() {
	switch {
	case s.d.has("reverse order"):
		slices.Reverse(s.queue)
	case s.d.has("two swapped") && len(s.queue) > 2:
		s.queue[0], s.queue[1] = s.queue[1], s.queue[0]
	}
}

func (s *lazyStream) carryOut(w *lazyWork) {
	w.done = true
	if w.failure != nil && s.err == nil {
		s.err = &device.StreamError{Device: "lazy", Work: "work", Err: w.failure}
		w.err = s.err
		if w.staging != nil {
			w.staging.err = s.err
		}
		return
	}
	if s.err != nil && !s.d.has("continues after a failure") {
		w.err = s.err
		if w.staging != nil {
			w.staging.err = s.err
		}
		return
	}
	for _, r := range w.regions {
		if b, ok := r.Buffer.(*lazyBuffer); ok && b.freed && s.d.has("free drops work") {
			return
		}
	}
	w.do()
}
