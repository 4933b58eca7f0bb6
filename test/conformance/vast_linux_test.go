//go:build linux && (amd64 || arm64)

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// The low 32 bits of vast are a small number.
const (
	vastPages = 1<<32 + 32<<20
	vast      = vastPages + 12345
)

// reserve returns zeroed memory, which the system allocates when it is written.
func reserve(t *testing.T, size int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	require.Have(t, "address space", err == nil, fmt.Sprintf("%d bytes: %v", size, err))
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) // With huge pages the system handles a page fault for every 2 MiB instead of every 4 KiB.
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Errorf("munmap: %v", err)
		}
	})
	return b
}

// fold maps the whole pages of b from lo to hi to one piece of memory, repeatedly, so
// that a vast message fits into little memory.
func fold(t *testing.T, b []byte, lo, hi int) {
	t.Helper()
	const piece = 8 << 20
	f, err := os.CreateTemp("/dev/shm", "nexar-fold-")
	require.Have(t, "shm", err == nil, fmt.Sprint(err))
	defer f.Close()
	if err := errors.Join(os.Remove(f.Name()), f.Truncate(piece)); err != nil {
		t.Fatal(err)
	}
	for ; lo < hi; lo += piece {
		at := uintptr(unsafe.Pointer(&b[lo]))
		got, _, no := syscall.Syscall6(syscall.SYS_MMAP, at, uintptr(min(piece, hi-lo)),
			syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_FIXED|syscall.MAP_POPULATE, f.Fd(), 0)
		if no != 0 || got != at {
			t.Fatalf("mmap: %v", no)
		}
	}
}

// TestVastMessage sends more than 4 GiB through pipes, from several regions, and from
// memory that the receiver can read. Only the bytes around the ends and around 4 GiB take
// memory.
func TestVastMessage(t *testing.T) {
	require.NoRace(t, "it copies gigabytes")
	for _, test := range []struct {
		worldtest.Medium
		cuts []int // of the message into regions
	}{
		{worldtest.Mem(), []int{1 << 20, 3 << 30, 1<<32 + 1}},
		{worldtest.SHM(), nil},
	} {
		t.Run(test.Name, func(t *testing.T) {
			test.Require(t)
			const around = 4 << 20
			src, dst := reserve(t, vast), reserve(t, vast)
			fold(t, dst, around, 1<<32-around)
			fold(t, dst, 1<<32+around, vastPages-around)
			marks := []int{0, 1<<32 - 1, 1 << 32, 1<<32 + 1, vast - 1}
			for i, at := range marks {
				src[at] = byte(i + 1)
			}
			worldtest.OnAll(t, test.Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if rank == 0 {
					return sendVast(ctx, c, src, test.cuts)
				}
				got, err := nexar.Recv(ctx, c, dst, 0, 3)
				if err == nil && got.Count != vast {
					err = fmt.Errorf("received %d bytes, want %d", got.Count, vast)
				}
				return err
			})
			for i, at := range marks {
				if dst[at] != byte(i+1) {
					t.Errorf("byte %d is %d, want %d", at, dst[at], i+1)
				}
			}
		})
	}
}

func sendVast(ctx context.Context, c *nexar.Comm, src []byte, cuts []int) error {
	if cuts == nil {
		return nexar.Send(ctx, c, src, 1, 3)
	}
	var regions [][]byte
	last := 0
	for _, at := range append(cuts, len(src)) {
		regions = append(regions, src[last:at])
		last = at
	}
	return nexar.SendVec(ctx, c, regions, 1, 3)
}

// TestVastMessageRefused: a vast message that does not fit is refused with its whole
// length.
func TestVastMessageRefused(t *testing.T) {
	for _, m := range worldtest.MessageMedia() {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			src := reserve(t, vast)
			comms := m.Cluster(t, 2, nexar.Config{})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
				defer cancel()
				var err error
				want := fmt.Sprintf("%d bytes from rank 0, room for 2147483648", vast)
				if rank == 0 {
					err = nexar.Send(ctx, c, src, 1, 3)
					want = fmt.Sprintf("%d bytes to rank 1, which has room for 2147483648", vast)
				} else {
					probed, err2 := nexar.Probe[byte](ctx, c, 0, 3)
					if err2 != nil || probed.Count != vast {
						return fmt.Errorf("Probe: %+v, %w", probed, err2)
					}
					_, err = nexar.Recv(ctx, c, src[:2<<30], 0, 3)
				}
				if !errors.Is(err, nexar.ErrTruncated) || !worldtest.HasText(err, want) {
					return fmt.Errorf("%w, want ErrTruncated and %q", err, want)
				}
				return nil
			})
		})
	}
}

// TestVastMismatch: lengths that differ in their high 32 bits alone are a mismatch, and
// the error has the whole lengths.
func TestVastMismatch(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		for _, op := range []struct {
			name string
			call func(ctx context.Context, c *nexar.Comm, data []byte) error
		}{
			{"broadcast", func(ctx context.Context, c *nexar.Comm, data []byte) error { return nexar.Broadcast(ctx, c, data, 0) }},
			{"all_reduce", func(ctx context.Context, c *nexar.Comm, data []byte) error {
				return nexar.AllReduce(ctx, c, data, nexar.Max)
			}},
		} {
			t.Run(m.Name+"/"+op.name, func(t *testing.T) {
				data := reserve(t, vast)
				comms := m.Cluster(t, 2, nexar.Config{})
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
					defer cancel()
					short := vast & (1<<32 - 1)
					x := data[:short]
					if rank == 1 {
						x = data
					}
					err := op.call(ctx, c, x)
					want, ok := errors.AsType[*nexar.MismatchError](err)
					if !ok || want.Call.Length+want.PeerCall.Length != vast+short || !worldtest.HasText(err, fmt.Sprintf("%d × uint8", vast)) {
						return fmt.Errorf("%w, want a MismatchError of %d and %d elements", err, short, vast)
					}
					return nil
				})
			})
		}
	}
}

// TestVastAllToAll: if a rank would receive more than a vector may have, all ranks get the same error, and none allocates it.
func TestVastAllToAll(t *testing.T) {
	require.NoRace(t, "the detector has no shadow memory for so much")
	const each, count = 1 << 30, 256 // Twice as much is one byte more than a vector may have.
	src := reserve(t, each*count)
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		type giant [each]byte
		own, counts := []giant(nil), []int{0, 0, 0}
		if rank > 0 {
			own, counts[1] = unsafe.Slice((*giant)(unsafe.Pointer(&src[0])), count), count
		}
		dst, _, err := nexar.AllToAllVAlloc(t.Context(), c, own, counts)
		const want = "nexar: all_to_all_v: invalid length: for rank 1, dstCounts[2] is 256: all blocks together have at most 511 elements"
		if !errors.Is(err, nexar.ErrInvalidLength) || err.Error() != want || dst != nil {
			return fmt.Errorf("got %w, want %s", err, want)
		}
		return nil
	})
	worldtest.CheckWorks(t, comms)
}
