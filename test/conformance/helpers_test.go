package conformance

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

func TestMain(m *testing.M) {
	worldtest.Setup()
	goleak.VerifyTestMain(m)
}

// bytesOf returns the memory of s.
func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}

// typeOf returns the kernel's name for T.
func typeOf[T nexar.Number]() kernel.Type {
	var zero T
	switch any(zero).(type) {
	case int8:
		return kernel.Int8
	case int16:
		return kernel.Int16
	case int32:
		return kernel.Int32
	case int64:
		return kernel.Int64
	case uint8:
		return kernel.Uint8
	case uint16:
		return kernel.Uint16
	case uint32:
		return kernel.Uint32
	case uint64:
		return kernel.Uint64
	case float32:
		return kernel.Float32
	case float64:
		return kernel.Float64
	case nexar.Float16:
		return kernel.Float16
	case nexar.BFloat16:
		return kernel.BFloat16
	case nexar.Float8E4M3:
		return kernel.Float8E4M3
	case nexar.Float8E5M2:
		return kernel.Float8E5M2
	}
	panic(fmt.Sprintf("no kernel type for %T", zero))
}

// hasSharedPlans reports whether the ranks of c can run plans in shared memory.
func hasSharedPlans(c *nexar.Comm) bool {
	list, err := c.Algorithms("all_reduce", 64)
	if err != nil {
		panic(err)
	}
	for _, a := range list {
		if a.Shared {
			return true
		}
	}
	return false
}

// pinName returns the pin of an algorithm for Comm.SetAlgorithms: in shared memory if the
// ranks share memory and the algorithm allows it, otherwise over links with this number
// of channels.
func pinName(c *nexar.Comm, k plan.Collective, a plan.Algorithm, channels int) string {
	if a.Shared || hasSharedPlans(c) && cost.Cuttable(a, cost.Need{Collective: k, Size: c.Size()}) {
		return fmt.Sprintf("%v=%s", k, a.Name)
	}
	return fmt.Sprintf("%v=%s/%d", k, a.Name, channels)
}

// hostsAreUsed reports whether c chooses a hierarchical algorithm for an all-reduce of
// this many bytes, and returns the choice.
func hostsAreUsed(c *nexar.Comm, bytes int) (nexar.Algorithm, bool, error) {
	list, err := c.Algorithms("all_reduce", bytes)
	if err != nil {
		return nexar.Algorithm{}, false, err
	}
	for _, a := range plan.Algorithms(plan.AllReduce) {
		if a.Name == list[0].Name {
			return list[0], false, nil
		}
	}
	return list[0], true, nil
}

// expectNothing fails the test if rank 0 has an outstanding message or receive: the next
// message between each pair of ranks must be the one sent here.
func expectNothing(ctx context.Context, t *testing.T, comms []*nexar.Comm, dst []int32) {
	t.Helper()
	for rank := 1; rank < len(comms); rank++ {
		got := make([]int32, 2)
		h := nexar.StartRecv(ctx, comms[rank], got, nexar.AnyRank, nexar.AnyTag)
		if err := nexar.Send(ctx, comms[0], []int32{7, int32(rank)}, rank, 5); err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(); err != nil || h.Status() != (nexar.Status{Source: 0, Tag: 5, Count: 2}) || got[1] != int32(rank) {
			t.Errorf("rank %d received %+v, %v, %v: rank 0 had sent a message", rank, h.Status(), err, got)
		}
	}
	h := nexar.StartRecv(ctx, comms[0], dst, nexar.AnyRank, nexar.AnyTag)
	if err := nexar.Send(ctx, comms[1], []int32{5, 6}, 0, 4); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(); err != nil || h.Status() != (nexar.Status{Source: 1, Tag: 4, Count: 2}) || dst[0] != 5 || dst[1] != 6 {
		t.Errorf("the receive after it: %+v, %v, %v", h.Status(), err, dst)
	}
}

// unpin removes all pins.
func unpin(c *nexar.Comm) {
	if err := c.SetAlgorithms(); err != nil {
		panic(err) // An empty list of pins is always valid.
	}
}
