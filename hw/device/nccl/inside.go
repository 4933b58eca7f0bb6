package nccl

import (
	"context"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// inside performs transfers among the ranks of a host.
type inside interface {
	name() string

	// run queues transfers, or performs them. All ranks of the host call it with the same list of transfers, which may differ in
	// their buffers.
	run(ctx context.Context, transfers []transfer) error
}

// A transfer is a collective among the ranks of a host. Regions are contiguous.
type transfer struct {
	kind     transferKind
	dst, src device.Region
	t        device.Type // of a reduction
	op       device.Op
	root     int // local rank
}

type transferKind int

const (
	transferReduce        transferKind = iota // src of all ranks to dst of root, which may be src
	transferAllReduce                         // src of all ranks to dst of all, which may be src; by peers only
	transferReduceScatter                     // the i-th part of src of all ranks to dst of rank i, which may be this part
	transferBroadcast                         // dst of root to dst of the others
	transferAllGather                         // src to a part of dst of all ranks, which src may be
	transferAllToAll                          // the i-th part of src to rank i; they do not overlap dst
)

// part returns n bytes of a contiguous region.
func part(r device.Region, at, n int) device.Region {
	return device.Region{Buffer: r.Buffer, Offset: r.Offset + at, Bytes: n}
}

// address returns the address of a region.
func address(r device.Region) uintptr {
	p, _ := cuda.Pointer(r.Buffer)
	return p + uintptr(r.Offset)
}

// byNCCL is an inside that uses NCCL.
type byNCCL struct{ g *Group }

func (byNCCL) name() string { return "nccl" }

// run makes the calls of all transfers as one group of NCCL.
func (b byNCCL) run(ctx context.Context, transfers []transfer) error {
	what := "ncclGroupEnd"
	if len(transfers) == 1 {
		what = map[transferKind]string{
			transferReduce: "ncclReduce", transferReduceScatter: "ncclReduceScatter", transferBroadcast: "ncclBroadcast",
			transferAllGather: "ncclAllGather", transferAllToAll: "ncclSend and ncclRecv",
		}[transfers[0].kind]
	}
	return b.g.grouped(ctx, what, func(comm uintptr) error {
		for _, m := range transfers {
			if err := b.call(comm, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// call makes the calls of a transfer.
func (b byNCCL) call(comm uintptr, m transfer) error {
	g, size := b.g, uintptr(max(1, m.t.Size()))
	call := func(name string, args ...uintptr) error {
		return g.lib.call(name, comm, append(args, comm, g.handle)...)
	}
	switch m.kind {
	case transferReduce:
		return call("ncclReduce", address(m.src), address(m.dst), uintptr(m.src.Bytes)/size, types[m.t], ops[m.op], uintptr(m.root))
	case transferReduceScatter:
		return call("ncclReduceScatter", address(m.src), address(m.dst), uintptr(m.dst.Bytes)/size, types[m.t], ops[m.op])
	case transferBroadcast:
		p := address(m.dst)
		return call("ncclBroadcast", p, p, uintptr(m.dst.Bytes), types[device.Uint8], uintptr(m.root))
	case transferAllGather:
		return call("ncclAllGather", address(m.src), address(m.dst), uintptr(m.src.Bytes), types[device.Uint8])
	}
	n := uintptr(m.src.Bytes / len(g.hosts[0]))
	for i := range uintptr(len(g.hosts[0])) {
		if err := call("ncclSend", address(m.src)+i*n, n, types[device.Uint8], i); err != nil {
			return err
		}
		if err := call("ncclRecv", address(m.dst)+i*n, n, types[device.Uint8], i); err != nil {
			return err
		}
	}
	return nil
}

// throughHost is an inside that uses collectives of nexar.
type throughHost struct{ g *Group }

func (throughHost) name() string { return "host" }

func (t throughHost) run(ctx context.Context, transfers []transfer) error {
	for _, m := range transfers {
		if err := t.transfer(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (t throughHost) transfer(ctx context.Context, m transfer) error {
	g := t.g
	c := g.local.WithStream(g.stream)
	switch m.kind {
	case transferReduce:
		at := m.src
		if g.index == m.root && m.dst != m.src {
			if at = m.dst; at.Bytes > 0 {
				if err := g.stream.Copy(m.dst, m.src); err != nil {
					return err
				}
			}
		}
		return c.Reduce(ctx, m.t, at, nexar.Op(m.op), m.root)
	case transferReduceScatter:
		return c.ReduceScatter(ctx, m.t, m.dst, m.src, nexar.Op(m.op))
	case transferBroadcast:
		return c.Broadcast(ctx, device.Uint8, m.dst, m.root)
	case transferAllGather:
		return c.AllGather(ctx, device.Uint8, m.dst, m.src)
	}
	return c.AllToAll(ctx, device.Uint8, m.dst, m.src)
}
