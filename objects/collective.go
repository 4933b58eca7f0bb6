package objects

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/nexar-go/nexar"
)

// A call is an operation of this rank.
type call struct {
	comm   *nexar.Comm
	op     string
	root   int    // if it has one
	typ    string // of the objects
	format string // the type and the codec
	limit  int    // of the encoded objects together, in bytes
}

// String describes the call, as an ErrMismatch shows it.
func (k *call) String() string {
	if !k.hasRoot() {
		return fmt.Sprintf("%s of %s", k.op, k.format)
	}
	return fmt.Sprintf("%s of %s from root %d", k.op, k.format, k.root)
}

func (k *call) hasRoot() bool { return k.op == "broadcast" || k.op == "gather" || k.op == "scatter" }

// broadcast returns the object that root encodes.
func (k *call) broadcast(ctx context.Context, encode func() ([][]byte, error)) ([]byte, error) {
	own, all, err := k.agree(ctx, k.comm.Rank() == k.root, encode)
	if err != nil {
		return nil, err
	}
	if own == nil {
		own = [][]byte{make([]byte, all.sizes(k.root)[0])}
	}
	return own[0], k.wrap(nexar.Broadcast(ctx, k.comm, own[0], k.root))
}

// gather returns the objects of all ranks, on root or on all ranks, and nil on others.
func (k *call) gather(ctx context.Context, encode func() ([][]byte, error)) ([][]byte, error) {
	own, all, err := k.agree(ctx, true, encode)
	if err != nil {
		return nil, err
	}
	counts := make([]int, k.comm.Size())
	for r := range counts {
		counts[r] = int(all.sizes(r)[0])
	}
	if k.hasRoot() && k.root != k.comm.Rank() {
		return nil, k.wrap(nexar.GatherV(ctx, k.comm, nil, own[0], counts, k.root))
	}
	dst := make([]byte, sum(counts))
	if k.hasRoot() {
		err = nexar.GatherV(ctx, k.comm, dst, own[0], counts, k.root)
	} else {
		err = nexar.AllGatherV(ctx, k.comm, dst, own[0], counts)
	}
	return split(dst, counts), k.wrap(err)
}

// scatter returns the object that root has encoded for this rank.
func (k *call) scatter(ctx context.Context, encode func() ([][]byte, error)) ([]byte, error) {
	own, all, err := k.agree(ctx, k.comm.Rank() == k.root, encode)
	if err != nil {
		return nil, err
	}
	counts := make([]int, k.comm.Size())
	for r, b := range own {
		counts[r] = len(b)
	}
	if err := nexar.Broadcast(ctx, k.comm, counts, k.root); err != nil {
		return nil, k.wrap(err)
	}
	left := all.sizes(k.root)[0]
	for r, n := range counts {
		if n < 0 || int64(n) > left || r == len(counts)-1 && int64(n) != left {
			return nil, k.wrap(fmt.Errorf("rank %d has announced %d bytes, and then blocks of %d", k.root, all.sizes(k.root)[0], counts))
		}
		left -= int64(n)
	}
	dst := make([]byte, counts[k.comm.Rank()])
	return dst, k.wrap(nexar.ScatterV(ctx, k.comm, dst, slices.Concat(own...), counts, k.root))
}

// allToAll returns the objects that all ranks have encoded for this one.
func (k *call) allToAll(ctx context.Context, encode func() ([][]byte, error)) ([][]byte, error) {
	own, all, err := k.agree(ctx, true, encode)
	if err != nil {
		return nil, err
	}
	in, out := make([]int, k.comm.Size()), make([]int, k.comm.Size())
	for r := range in {
		in[r], out[r] = int(all.sizes(r)[k.comm.Rank()]), len(own[r])
	}
	dst := make([]byte, sum(in))
	err = nexar.AllToAllV(ctx, k.comm, dst, slices.Concat(own...), in, out)
	return split(dst, in), k.wrap(err)
}

// agree encodes the objects of this rank, if it sends any, and exchanges notices of them. After an error on any rank, all ranks get an error.
func (k *call) agree(ctx context.Context, sends bool, encode func() ([][]byte, error)) (own [][]byte, all notices, err error) {
	if k.hasRoot() && (k.root < 0 || k.root >= k.comm.Size()) {
		return nil, notices{}, k.wrap(fmt.Errorf("%w: root %d of %d ranks", nexar.ErrInvalidRank, k.root, k.comm.Size()))
	}
	failure := errExited
	defer func() {
		if failure == errExited { // The panic goes on when the other ranks have been told.
			_, _ = k.exchange(ctx, nil, failure)
		}
	}()
	if sends {
		own, err = encode()
	}
	failure = err
	all, err = k.exchange(ctx, own, failure)
	return own, all, err
}

// exchange exchanges notices. If the call cannot go on, it returns the same error on all ranks.
func (k *call) exchange(ctx context.Context, own [][]byte, failure error) (all notices, err error) {
	text := k.text(failure)
	row := k.notice(own, failure != nil, len(text))
	all = notices{flat: make([]int64, k.comm.Size()*len(row)), width: len(row)}
	if err := nexar.AllGather(ctx, k.comm, all.flat, row); err != nil {
		return all, k.wrap(err)
	}
	rank, verdict, err := k.judge(all)
	switch verdict {
	case failed:
		why, err := k.tell(ctx, all, rank, text)
		if err != nil {
			return all, err
		}
		return all, k.encodeError(rank, why, failure)
	case mismatched:
		zero, err := k.tell(ctx, all, 0, text)
		if err != nil {
			return all, err
		}
		other, err := k.tell(ctx, all, rank, text)
		if err != nil {
			return all, err
		}
		return all, k.wrap(fmt.Errorf("%w: rank 0 called %s, rank %d called %s", ErrMismatch, firstLine(zero), rank, firstLine(other)))
	}
	return all, k.wrap(err)
}

// tell returns the text of a rank, on all ranks.
func (k *call) tell(ctx context.Context, all notices, rank int, own string) (string, error) {
	b := make([]byte, all.of(rank)[noticeText])
	if rank == k.comm.Rank() {
		copy(b, own)
	}
	err := nexar.Broadcast(ctx, k.comm, b, rank)
	return string(b), k.wrap(err)
}

// notice returns what this rank tells the others of its call and its encoded objects.
func (k *call) notice(own [][]byte, isFailed bool, text int) []int64 {
	n := make([]int64, noticeSizes+1)
	if k.op == "all_to_all" {
		n = make([]int64, noticeSizes+k.comm.Size())
	}
	digest := fnv.New64a()
	digest.Write([]byte(k.String()))
	n[noticeCall], n[noticeText], n[noticeLimit] = int64(digest.Sum64()), int64(text), int64(k.limit)
	if isFailed {
		n[noticeFailed] = 1
		return n
	}
	for i, b := range own {
		n[noticeSizes+min(i, len(n)-noticeSizes-1)] += int64(len(b))
	}
	return n
}

// split divides b into blocks.
func split(b []byte, counts []int) [][]byte {
	blocks := make([][]byte, len(counts))
	for i, n := range counts {
		blocks[i], b = b[:n:n], b[n:]
	}
	return blocks
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
