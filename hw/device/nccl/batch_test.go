package nccl_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/internal/kernel"
)

// TestPeerBits: with peer access, results have the bits of the host's reductions in the order of the ranks.
func TestPeerBits(t *testing.T) {
	ranks := world(t, []string{"a", "a", "a"}, noLibrary, nccl.Config{ExchangeBuffer: 9000})
	random := rand.New(rand.NewPCG(1, 2))
	for _, typ := range []device.Type{device.Float32, device.Float64, device.Float16, device.BFloat16, device.Complex64} {
		for _, op := range []nexar.Op{nexar.Sum, nexar.Prod, nexar.Max} {
			if !device.Op(op).Defined(typ) {
				continue
			}
			n := 3001
			if typ == device.Float32 {
				n = 30_011 // not in a single pass
			}
			inputs := make([][]byte, len(ranks))
			for i := range inputs {
				inputs[i] = make([]byte, n*typ.Size())
				for k := range inputs[i] {
					inputs[i][k] = byte(random.Uint32()) // also NaN, infinite and subnormal
				}
			}
			want := slices.Clone(inputs[0])
			for _, other := range inputs[1:] {
				kernel.Reducer(typ, kernel.Op(op))(want, want, other)
			}
			each(t, ranks, func(i int, r *rank) error {
				got, err := r.on(t.Context(), inputs[i], func(b device.Buffer) error {
					return r.group.AllReduce(t.Context(), typ, device.Whole(b), op)
				})
				if err == nil && !bytes.Equal(got, want) {
					err = fmt.Errorf("%v of %v: other bits than the host's", op, typ)
				}
				return err
			})
		}
	}
}

// TestBatch: the calls of a Batch have the results of the same calls on slices, with NCCL, with peer access and without
// both. A rank with NCCL makes two group calls for all of them: one before the exchange among hosts and one after.
func TestBatch(t *testing.T) {
	withNCCL := cudafake.NCCL(t)
	fake := cudafake.ControlNCCL(t, withNCCL)
	for _, test := range []struct {
		hosts, path string
		groups      int
	}{
		{"aabb", withNCCL, 8}, {"aaa", noLibrary, 0}, {"ab", withNCCL, 0}, {"aa--", withNCCL, 4},
	} {
		ranks := world(t, strings.Split(test.hosts, ""), test.path, nccl.Config{ExchangeBuffer: 4096})
		n, size := len(ranks), 20
		comms, err := nexar.Local(t.Context(), n, nexar.Config{})
		if err != nil {
			t.Fatal(err)
		}
		before := fake.Groups()
		each(t, ranks, func(i int, r *rank) error {
			ctx := t.Context()
			defer comms[i].Close()
			data := make([]int32, (4+2*n)*size)
			for k := range data {
				data[k] = int32(i*len(data) + k)
			}
			raw := unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), 4*len(data))
			got, err := r.on(ctx, slices.Clone(raw), func(b device.Buffer) error {
				at := func(from, n int) device.Region {
					return device.Region{Buffer: b, Offset: 4 * from * size, Bytes: 4 * n * size}
				}
				batch := r.group.Batch()
				batch.AllReduce(device.Int32, at(0, 1), nexar.Sum)
				batch.Broadcast(device.Int32, at(1, 1), n-1)
				batch.AllReduce(device.Int32, at(2, 1), nexar.BitXor) // not by NCCL
				batch.Reduce(device.Int32, at(3, 1), nexar.Max, 1)
				batch.AllToAll(device.Int32, at(4, n), at(4+n, n))
				return batch.Run(ctx)
			})
			if err != nil {
				return err
			}
			at := func(from, n int) []int32 { return data[from*size:][:n*size] }
			c := comms[i]
			err = errors.Join(nexar.AllReduce(ctx, c, at(0, 1), nexar.Sum), nexar.Broadcast(ctx, c, at(1, 1), n-1), nexar.AllReduce(ctx, c, at(2, 1), nexar.BitXor),
				nexar.Reduce(ctx, c, at(3, 1), nexar.Max, 1), nexar.AllToAll(ctx, c, at(4, n), at(4+n, n)))
			if err == nil && !bytes.Equal(got, raw) {
				err = fmt.Errorf("%s: the results differ from those of slices", test.hosts)
			}
			return err
		})
		if got := fake.Groups() - before; got != test.groups {
			t.Errorf("%s: %d group calls of NCCL, want %d", test.hosts, got, test.groups)
		}
		// An invalid call is an error before anything is done.
		batch := ranks[0].group.Batch()
		b := must(ranks[0].gpu.Alloc(t.Context(), 6))
		batch.AllReduce(device.Int16, device.Whole(b), nexar.Sum)
		batch.AllReduce(device.Int32, device.Whole(b), nexar.Sum)
		if err := batch.Run(t.Context()); !errors.Is(err, nexar.ErrInvalidLength) {
			t.Errorf("%s: 6 bytes of int32: %v, want ErrInvalidLength", test.hosts, err)
		}
	}
}

// TestLastError: an error has the message of ncclGetLastError.
func TestLastError(t *testing.T) {
	ranks := world(t, []string{"a", "a"}, cudafake.NCCL(t), nccl.Config{})
	each(t, ranks, func(i int, r *rank) error {
		_, err := r.on(t.Context(), make([]byte, 64), func(b device.Buffer) error {
			return r.group.AllReduce(t.Context(), device.BFloat16, device.Whole(b), nexar.Sum)
		})
		if err == nil || !strings.Contains(err.Error(), "ncclReduceScatter: invalid argument (4): fake: type, op or root") {
			return fmt.Errorf("%v, want the last error of the fake, which has no bfloat16", err)
		}
		return nil
	})
}

// TestFault: when a kernel of a rank accesses memory that it may not access, the rank gets the error of its GPU, and
// the others an error with its message that names it.
func TestFault(t *testing.T) {
	for name, library := range map[string]string{"nccl": cudafake.NCCL(t), "peer": noLibrary} {
		t.Run(name, func(t *testing.T) {
			ranks := world(t, []string{"a", "a", "a"}, library, nccl.Config{})
			each(t, ranks, func(i int, r *rank) error {
				_, err := r.on(t.Context(), vector(device.Float32, i, 999), func(b device.Buffer) error {
					if i == 1 {
						cudafake.New(t).Fault(1)
					}
					return r.group.AllReduce(t.Context(), device.Float32, device.Whole(b), nexar.Avg) // divides by a kernel
				})
				// NCCL may notice the failure of the GPU first.
				if err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") && !strings.Contains(err.Error(), "unhandled cuda error") {
					return fmt.Errorf("error %v, want that of the GPU", err)
				}
				if revoked, ok := errors.AsType[*nexar.RevokedError](err); i != 1 && (!ok || revoked.Rank != 1) {
					return fmt.Errorf("error %w, want one that names rank 1", err)
				}
				return nil
			})
		})
	}
}
