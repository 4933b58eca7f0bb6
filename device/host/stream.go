package host

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/kernel"
)

// A staging is Go memory. Work is never queued, so the caller always owns it.
type staging struct{ memory }

func (s *staging) Bytes(context.Context) ([]byte, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.mem, nil
}

// A stream does its work in the call that queues it.
type stream struct{ closed atomic.Bool }

var _ device.Reducer = (*stream)(nil)

func (s *stream) Device() device.Device { return Device{} }

func (s *stream) StageSend(dst device.Staging, at int, src ...device.Region) error {
	mem, err := s.check(dst, at, src)
	if err != nil {
		return err
	}
	for _, r := range src {
		mem = copyOut(mem, r)
	}
	return nil
}

func (s *stream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	mem, err := s.check(src, at, dst)
	if err != nil {
		return err
	}
	for _, r := range dst {
		mem = copyIn(r, mem)
	}
	return nil
}

func (s *stream) Copy(dst, src device.Region) error {
	if err := device.CheckPair(Device{}, dst, src); err != nil {
		return err
	}
	if err := s.checkPair(dst, src); err != nil {
		return err
	}
	forRows(dst, src, func(d, s []byte) { copy(d, s) })
	return nil
}

// Reduce implements device.Reducer. It uses the code of collectives, and has the same bits.
func (s *stream) Reduce(dst, src device.Region, t device.Type, op device.Op) error {
	if err := device.CheckReduce(Device{}, dst, src, t, op); err != nil {
		return err
	}
	if err := s.checkPair(dst, src); err != nil {
		return err
	}
	reduce := kernel.Reducer(t, kernel.Op(op))
	forRows(dst, src, func(d, s []byte) { reduce(d, d, s) })
	return nil
}

func (s *stream) Wait(context.Context) error { return s.checkOpen() }

func (s *stream) Close() error {
	if s.closed.Swap(true) {
		return s.checkOpen()
	}
	return nil
}

func (s *stream) checkOpen() error {
	if s.closed.Load() {
		return fmt.Errorf("device host: stream: %w", device.ErrClosed)
	}
	return nil
}

// check checks the arguments of a staged copy, and returns the part of the staging that is
// copied to or from.
func (s *stream) check(st device.Staging, at int, regions []device.Region) ([]byte, error) {
	bytes, err := Device{}.check(regions...)
	if err == nil {
		err = device.CheckStaging(Device{}, st, at, bytes)
	}
	if err == nil {
		err = s.checkOpen()
	}
	if err != nil {
		return nil, err
	}
	own, ok := st.(*staging)
	if !ok {
		return nil, &device.ForeignError{Device: "host", Owner: fmt.Sprintf("%T", st), What: "staging"}
	}
	mem, err := own.Bytes(context.Background())
	if err != nil {
		return nil, err
	}
	return mem[at : at+bytes], nil
}

// checkPair checks, after device.CheckPair, for freed buffers, and for buffers of the same
// slice, which can overlap.
func (s *stream) checkPair(dst, src device.Region) error {
	if _, err := (Device{}).check(dst, src); err != nil {
		return err
	}
	distance := int(address(memoryOf(src)) - address(memoryOf(dst)))
	if (device.Region{
		Buffer: dst.Buffer, Offset: src.Offset + distance, Bytes: src.Bytes, Rows: src.Rows, Stride: src.Stride,
	}).Overlaps(dst) {
		return fmt.Errorf("device host: buffers of the same memory: %w", device.ErrOverlap)
	}
	return s.checkOpen()
}

// forRows calls f for each row of two regions of the same shape.
func forRows(dst, src device.Region, f func(dst, src []byte)) {
	to, from := memoryOf(dst), memoryOf(src)
	for row := range dst.RowCount() {
		d, s := dst.RowAt(row), src.RowAt(row)
		f(to[d:d+dst.Bytes], from[s:s+src.Bytes])
	}
}
