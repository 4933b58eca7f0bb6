package nccl_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

const (
	gpus      = 8
	noLibrary = "libnccl-none.so.2"
)

// A rank is one of a world in this process.
type rank struct {
	comm   *nexar.Comm
	gpu    device.Device
	stream device.Stream
	group  *nccl.Group
}

// world returns ranks on GPUs, with the hosts of a list. A host "-" has no GPU.
func world(t *testing.T, hosts []string, library string, cfg nccl.Config) []*rank {
	t.Helper()
	comms, err := nexar.Local(t.Context(), len(hosts), nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return worldOf(t, comms, hosts, library, cfg)
}

// worldOf is world for communicators, which it closes.
func worldOf(t *testing.T, comms []*nexar.Comm, hosts []string, library string, cfg nccl.Config) []*rank {
	t.Helper()
	fake := cudafake.New(t)
	fake.Configure(gpus, 256<<20)
	ranks := make([]*rank, len(hosts))
	for i, c := range comms {
		r := &rank{comm: c, gpu: host.Device{}}
		ranks[i] = r
		if hosts[i] != "-" {
			gpu, err := cuda.Open(i%gpus, cuda.Config{Library: fake.Path})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { gpu.Close() })
			r.gpu = gpu
		}
		var err error
		if r.stream, err = r.gpu.NewStream(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.stream.Close() })
	}
	each(t, ranks, func(i int, r *rank) (err error) {
		cfg := cfg
		cfg.Library, cfg.Host = library, hosts[i]
		r.group, err = nccl.New(t.Context(), r.comm, r.stream, cfg)
		return err
	})
	t.Cleanup(func() {
		var all sync.WaitGroup
		for _, r := range ranks {
			all.Go(func() { r.group.Close(); r.comm.Close() })
		}
		all.Wait()
	})
	return ranks
}

// each calls f for all ranks at the same time.
func each(t *testing.T, ranks []*rank, f func(i int, r *rank) error) {
	t.Helper()
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() {
			if errs[i] = f(i, r); errs[i] != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, errs[i])
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// vector returns numbers of a type that are so small that their sums and products are exact.
func vector(t device.Type, rank, n int) (p []byte) {
	for i := range n {
		v := (i*7+rank*3)%5 + 1
		switch t {
		case device.Float32:
			p = binary.NativeEndian.AppendUint32(p, math.Float32bits(float32(v)))
		case device.Float64:
			p = binary.NativeEndian.AppendUint64(p, math.Float64bits(float64(v)))
		case device.Int32, device.Uint32:
			p = binary.NativeEndian.AppendUint32(p, uint32(v))
		case device.Int64, device.Uint64:
			p = binary.NativeEndian.AppendUint64(p, uint64(v))
		case device.Int16, device.Uint16:
			p = binary.NativeEndian.AppendUint16(p, uint16(v))
		default:
			p = append(p, byte(v))
		}
	}
	return p
}

// add adds vectors of float32.
func add(dst, src []byte) {
	for i := 0; i < len(dst); i += 4 {
		sum := math.Float32frombits(binary.NativeEndian.Uint32(dst[i:])) + math.Float32frombits(binary.NativeEndian.Uint32(src[i:]))
		binary.NativeEndian.PutUint32(dst[i:], math.Float32bits(sum))
	}
}

// on calls f with a buffer of data, and returns its contents afterwards.
func (r *rank) on(ctx context.Context, data []byte, f func(b device.Buffer) error) ([]byte, error) {
	b, err := r.gpu.Alloc(ctx, len(data))
	if err != nil {
		return nil, err
	}
	defer b.Free()
	if err := r.gpu.CopyIn(ctx, device.Whole(b), data); err != nil {
		return nil, err
	}
	if err := f(b); err != nil {
		return nil, err
	}
	out := make([]byte, len(data))
	return out, r.gpu.CopyOut(ctx, out, device.Whole(b))
}

// layouts are hosts of ranks, the method of each rank inside its host, and a part of the reason of those without NCCL.
var layouts = []struct {
	hosts, inside []string
	reason        string
	without       bool // NCCL
}{
	{[]string{"a", "a"}, []string{"nccl", "nccl"}, "", false},
	{[]string{"a", "a", "a"}, []string{"nccl", "nccl", "nccl"}, "", false},
	{[]string{"a", "a", "b", "b"}, []string{"nccl", "nccl", "nccl", "nccl"}, "", false},
	{[]string{"a", "b", "b", "a"}, []string{"nccl", "nccl", "nccl", "nccl"}, "", false},
	{[]string{"b", "a", "a", "b", "a", "b"}, []string{"nccl", "nccl", "nccl", "nccl", "nccl", "nccl"}, "", false},
	{[]string{"a", "b"}, []string{"", ""}, "each host has one rank", false},
	{[]string{"a", "a", "b"}, []string{"", "", ""}, "the host of rank 2 has 1 ranks, and that of rank 0 has 2", false},
	{[]string{"a", "a", "-", "-"}, []string{"nccl", "nccl", "host", "host"}, "rank 2 has no GPU or no NCCL", false},
	{[]string{"-", "-"}, []string{"", ""}, "rank 0 has no GPU or no NCCL", false},
	{[]string{"a", "a", "a"}, []string{"peer", "peer", "peer"}, "rank 0 has no GPU or no NCCL", true},
	{[]string{"a", "b", "b", "a"}, []string{"peer", "peer", "peer", "peer"}, " has no GPU or no NCCL", true},
	{[]string{"-", "a", "a", "-"}, []string{"host", "peer", "peer", "host"}, " has no GPU or no NCCL", true},
}

// TestCollectives: for all layouts of ranks, all collectives have the results of slices, and the same bits
// on all ranks. With TRIALS=all it runs all combinations, otherwise a part of them: sums of two types with all
// numbers of elements, and other operations and types with a number that depends on the layout. It tests each other operation of a
// type in every second layout. Where a Group is a DeviceComm, it tests only two types and operations.
func TestCollectives(t *testing.T) {
	withNCCL := cudafake.NCCL(t)
	all := os.Getenv("TRIALS") == "all"
	for k, l := range layouts {
		name, library := strings.Join(l.hosts, ""), withNCCL
		if l.without {
			name, library = name+" without NCCL", noLibrary
		}
		t.Run(name, func(t *testing.T) {
			ranks := world(t, l.hosts, library, nccl.Config{ExchangeBuffer: 4096})
			n := len(ranks)
			// Among GPUs of one host that access each other, no vector goes through memory of the host.
			direct := l.inside[0] == "peer" && !slices.ContainsFunc(l.hosts, func(h string) bool { return h != l.hosts[0] })
			for i, r := range ranks {
				if got := r.group.Inside(); got != l.inside[i] {
					t.Errorf("rank %d: inside %q (%s), want %q", i, got, r.group.Reason(), l.inside[i])
				}
				if got := r.group.Reason(); (got == "") != (l.inside[i] == "nccl") || got != "" && !strings.Contains(got, l.reason) {
					t.Errorf("rank %d: reason %q, want %q", i, got, l.reason)
				}
			}
			comms, err := nexar.Local(t.Context(), n, nexar.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				for _, c := range comms {
					c.Close()
				}
			}()
			elements := []device.Type{device.Float32, device.Uint8, device.Int32, device.Int64, device.Float64, device.Int16}
			operations := []nexar.Op{nexar.Sum, nexar.Avg, nexar.Prod, nexar.Max, nexar.Min, nexar.BitXor}
			if l.inside[0] == "" && !all {
				elements, operations = elements[:2], operations[:2]
			}
			for i, typ := range elements {
				for j, op := range operations {
					if op == nexar.BitXor && typ.Float() || op != nexar.Sum && (i+j+k)%2 == 1 && !all {
						continue
					}
					counts := []int{0, 1, n, 60, 61}
					if (op != nexar.Sum || i >= 2) && !all {
						counts = counts[(i+j+k)%len(counts):][:1]
					}
					for _, count := range counts {
						if n := compare(t, ranks, comms, typ, op, count); direct && n != 0 {
							t.Errorf("%d elements of %v, %v: %d copies between GPUs and the host, want none", count, typ, op, n)
						}
					}
				}
			}
		})
	}
}

// calls are the collectives of a Group and of a nexar.DeviceComm.
type calls interface {
	AllReduce(context.Context, device.Type, device.Region, nexar.Op) error
	Reduce(context.Context, device.Type, device.Region, nexar.Op, int) error
	Broadcast(context.Context, device.Type, device.Region, int) error
	AllGather(context.Context, device.Type, device.Region, device.Region) error
	ReduceScatter(context.Context, device.Type, device.Region, device.Region, nexar.Op) error
	AllToAll(context.Context, device.Type, device.Region, device.Region) error
}

// A collective is a call with a buffer that has the blocks of all ranks, and as many bytes behind them.
type collective struct {
	name string
	call func(ctx context.Context, c calls, b device.Buffer) error
}

// collectives returns the calls of n ranks for an operation. Those that do not reduce are among them for sums only.
func collectives(n int, typ device.Type, op nexar.Op, count int) []collective {
	size, root := count*typ.Size(), count%n
	whole := func(b device.Buffer) device.Region { return device.Region{Buffer: b, Bytes: n * size} }
	block := func(b device.Buffer) device.Region {
		return device.Region{Buffer: b, Offset: n * size, Bytes: size}
	}
	list := []collective{
		{"all_reduce", func(ctx context.Context, c calls, b device.Buffer) error { return c.AllReduce(ctx, typ, block(b), op) }},
		{"reduce", func(ctx context.Context, c calls, b device.Buffer) error {
			return c.Reduce(ctx, typ, block(b), op, root)
		}},
		{"reduce_scatter", func(ctx context.Context, c calls, b device.Buffer) error {
			return c.ReduceScatter(ctx, typ, block(b), whole(b), op)
		}},
	}
	if op != nexar.Sum {
		return list
	}
	return append(list,
		collective{"broadcast", func(ctx context.Context, c calls, b device.Buffer) error {
			return c.Broadcast(ctx, typ, block(b), root)
		}},
		collective{"all_gather", func(ctx context.Context, c calls, b device.Buffer) error {
			return c.AllGather(ctx, typ, whole(b), block(b))
		}},
		collective{"all_to_all", func(ctx context.Context, c calls, b device.Buffer) error {
			return c.AllToAll(ctx, typ, whole(b), device.Region{Buffer: b, Offset: n * size, Bytes: n * size})
		}})
}

// staged returns the number of copies between GPUs and the host.
func staged(fake *cudafake.Fake) int {
	return fake.Calls("cuMemcpyHtoDAsync_v2") + fake.Calls("cuMemcpyDtoHAsync_v2") + fake.Calls("cuMemcpy2DAsync_v2")
}

// compare runs all collectives on the GPUs, and on memory of the host. It returns the number of copies between GPUs and the
// host that the collectives have made.
func compare(t *testing.T, ranks []*rank, comms []*nexar.Comm, typ device.Type, op nexar.Op, count int) (copies int) {
	t.Helper()
	n, fake := len(ranks), cudafake.New(t)
	stream, _ := host.Device{}.NewStream()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range collectives(n, typ, op, count) {
		buffers, got, want := make([]device.Buffer, n), make([][]byte, n), make([][]byte, n)
		each(t, ranks, func(i int, r *rank) (err error) {
			want[i] = vector(typ, i, 2*n*count)
			got[i] = make([]byte, len(want[i]))
			if buffers[i], err = r.gpu.Alloc(ctx, len(want[i])); err != nil {
				return err
			}
			return r.gpu.CopyIn(ctx, device.Whole(buffers[i]), want[i])
		})
		before := staged(fake)
		each(t, ranks, func(i int, r *rank) error { return c.call(ctx, r.group, buffers[i]) })
		copies += staged(fake) - before
		each(t, ranks, func(i int, r *rank) error {
			err := r.gpu.CopyOut(ctx, got[i], device.Whole(buffers[i]))
			return errors.Join(err, buffers[i].Free(), c.call(ctx, comms[i].WithStream(stream), host.Of(want[i])))
		})
		for i := range ranks {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("%s of %d elements of %v, %v: rank %d has\n%v, want\n%v", c.name, count, typ, op, i, got[i], want[i])
			}
		}
	}
	return copies
}

// TestOldLibrary: a library that takes ids by value.
func TestOldLibrary(t *testing.T) {
	ranks := world(t, []string{"a", "a"}, cudafake.OldNCCL(t), nccl.Config{})
	each(t, ranks, func(i int, r *rank) error {
		if r.group.Reason() != "" {
			return errors.New(r.group.Reason())
		}
		got, err := r.on(t.Context(), vector(device.Int32, 0, 10), func(b device.Buffer) error {
			return r.group.AllReduce(t.Context(), device.Int32, device.Whole(b), nexar.Sum)
		})
		if err == nil && got[0] != 2 {
			err = fmt.Errorf("the sum is %v", got)
		}
		return err
	})
}

// TestNotUsed: the reason for not using NCCL, and the method that is used.
func TestNotUsed(t *testing.T) {
	for _, test := range []struct {
		path         string
		cfg          nccl.Config
		inside, want string
	}{
		{noLibrary, nccl.Config{}, "peer", "rank 0 has no GPU or no NCCL: NCCL is not installed: cannot open libnccl-none.so.2"},
		{noLibrary, nccl.Config{ExchangeBuffer: -1}, "", "rank 0 has no GPU or no NCCL: NCCL is not installed"},
		{noLibrary, nccl.Config{ExchangeBuffer: 1 << 40}, "", "; peer access is not used: rank 0: device cuda:0: out of memory"},
		{cudafake.New(t).Path, nccl.Config{}, "peer", "of version unknown has no nccl"},
		{cudafake.NCCLWith(t, "-DNO_SEND"), nccl.Config{}, "peer", "of version 2.23.4 has no ncclRecv: NCCL 2.7 and later have it; install NCCL 2.14 or later"},
	} {
		ranks := world(t, []string{"a", "a"}, test.path, test.cfg)
		for _, r := range ranks {
			if !strings.Contains(r.group.Reason(), test.want) || r.group.Inside() != test.inside {
				t.Errorf("inside %q, reason %q, want %q and %q", r.group.Inside(), r.group.Reason(), test.inside, test.want)
			}
		}
	}
}

// TestDeterministic: with nexar.Config.Deterministic, a Group of the world or of a part of it uses neither NCCL nor peer access.
func TestDeterministic(t *testing.T) {
	library := cudafake.NCCL(t)
	fake := cudafake.ControlNCCL(t, library)
	before := fake.Groups()
	for _, path := range []string{library, noLibrary} {
		comms, err := nexar.Local(t.Context(), 3, nexar.Config{Deterministic: true})
		if err != nil {
			t.Fatal(err)
		}
		each(t, worldOf(t, comms, []string{"a", "a", "a"}, path, nccl.Config{}), func(i int, r *rank) error {
			ctx := t.Context()
			part, err := r.comm.Split(ctx, i/2, 0)
			if err != nil {
				return err
			}
			defer part.Close()
			ofPart, err := nccl.New(ctx, part, r.stream, nccl.Config{Library: path})
			if err != nil {
				return err
			}
			defer ofPart.Close()
			for _, g := range []*nccl.Group{r.group, ofPart} {
				if g.Inside() != "" || g.Reason() != "rank 0 is deterministic" {
					return fmt.Errorf("inside %q, reason %q, want that rank 0 is deterministic", g.Inside(), g.Reason())
				}
			}
			got, err := r.on(ctx, vector(device.Float32, i, 999), func(b device.Buffer) error {
				return r.group.AllReduce(ctx, device.Float32, device.Whole(b), nexar.Sum)
			})
			want := vector(device.Float32, 0, 999)
			add(want, vector(device.Float32, 1, 999))
			add(want, vector(device.Float32, 2, 999))
			if err == nil && !bytes.Equal(got, want) {
				err = errors.New("the sum is wrong")
			}
			return err
		})
	}
	if n := fake.Groups() - before; n != 0 {
		t.Errorf("%d group calls of NCCL, want none", n)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestMisuse: wrong arguments are errors before any other rank is involved.
func TestMisuse(t *testing.T) {
	ranks := world(t, []string{"a", "a"}, cudafake.NCCL(t), nccl.Config{})
	g, b := ranks[0].group, must(ranks[0].gpu.Alloc(t.Context(), 100))
	whole := device.Whole(b)
	rows := device.Region{Buffer: b, Bytes: 8, Rows: 3, Stride: 16}
	for what, err := range map[string]error{
		"type":                g.Broadcast(t.Context(), 0, whole, 0),
		"rows":                g.AllReduce(t.Context(), device.Float32, rows, nexar.Sum),
		"length":              g.AllReduce(t.Context(), device.Float64, whole, nexar.Sum),
		"root":                g.Broadcast(t.Context(), device.Int8, whole, 2),
		"blocks":              g.AllGather(t.Context(), device.Int8, whole, device.Region{Buffer: b, Bytes: 49}),
		"overlap":             g.AllToAll(t.Context(), device.Int8, whole, whole),
		"block of all_to_all": g.AllToAll(t.Context(), device.Int8, device.Region{Buffer: b, Bytes: 5}, device.Region{Buffer: b, Offset: 5, Bytes: 5}),
		"region":              g.Reduce(t.Context(), device.Int32, device.Region{Buffer: b, Bytes: 104}, nexar.Sum, 0),
	} {
		if err == nil || errors.Is(err, nccl.ErrAborted) {
			t.Errorf("%s: %v, want an error of the argument", what, err)
		}
	}
}
