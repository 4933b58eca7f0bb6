package nexar

import (
	"context"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/direct"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// stagedMemory is the [Peer].DeviceMemory of a peer with which vectors of devices are copied through memory of the host.
const stagedMemory = "staged"

// directMin is the length of the shortest vector that a network card accesses in the memory of its device. Shorter ones are sent
// without a grant, so that the direct way would take a round trip more than staging. This has not been measured on hardware.
const directMin = wire.PayloadMax + 1

// A passage is a region of a device whose memory network cards may access.
type passage struct {
	*direct.Memory
	device device.Direct
	region device.Region
	bytes  []byte // of the region: the processor cannot access them
}

// passage returns the region of an operand if the network card of the connection to a rank accesses it, and nil if it must be
// staged. The caller releases it.
func (d DeviceComm) passage(o operand, rank int) *passage {
	on, ok := d.stream.Device().(device.Direct)
	if !ok || o.Len() < directMin || rank == d.comm.Rank() {
		return nil
	}
	l := d.comm.comm.Messages().Link(rank)
	if r, ok := o.Contiguous(); ok {
		if by := l.Exposer(); by != nil {
			if m, err := d.comm.node.direct.Hold(by, r.Buffer); err == nil {
				p := &passage{m, on, r, m.Bytes[r.Offset : r.Offset+r.Bytes]}
				if l.SuitsRemote(p.bytes) {
					l.SetDeviceMemory(m.Method)
					return p
				}
				m.Release()
			}
		}
	}
	l.SetDeviceMemory(stagedMemory)
	return nil
}

// settle waits until the work of the stream is done, so that a network card reads what it has written, and does not
// write what it still reads.
func (d DeviceComm) settle(ctx context.Context) error {
	until, stop := comm.Until(ctx, d.comm.Done(), d.comm.Err)
	defer stop()
	err := d.stream.Wait(until)
	if err == nil {
		return nil
	}
	if ended := d.comm.Err(); ended != nil {
		return ended
	}
	return d.failed(ctx, err)
}

// sendDirectly sends the memory of a device as a message. If the network card cannot write it to the peer any more, it is
// copied and sent as memory of the host. If that copy fails, the communicator ends, since the receiver waits for the rest.
func (d DeviceComm) sendDirectly(ctx context.Context, name string, p *passage, typ uint8, to int, tag Tag) error {
	if err := d.settle(ctx); err != nil {
		return opError(name, err)
	}
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failure error // of fetch, which happens before the end of the send
	fetch := func() []byte {
		b := make([]byte, len(p.bytes))
		if err := p.device.CopyOut(sending, b, p.region); err != nil {
			failure = err
			cancel(err)
			return nil
		}
		return b
	}
	s, err := d.comm.comm.Messages().StartSend(&p2p.Regions{First: p.bytes, Fetch: fetch}, typ, to, int64(tag))
	if s != nil {
		err = s.Wait(sending)
	}
	if err != nil && failure != nil && ctx.Err() == nil {
		return opError(name, d.failed(ctx, failure))
	}
	return d.comm.explain(ctx, name, err)
}

// receiveDirectly receives a message into the memory of a device.
func (d DeviceComm) receiveDirectly(ctx context.Context, name string, p *passage, of element, from int, tag Tag) (Status, error) {
	if err := d.settle(ctx); err != nil {
		return Status{}, opError(name, err)
	}
	landing := link.NewLanding(p.bytes)
	var got p2p.Received
	r, err := d.comm.comm.Messages().StartRecv(&p2p.Regions{First: p.bytes, Landing: landing}, of.Type, from, int64(tag))
	if err == nil {
		got, err = r.Wait(ctx)
	}
	if err != nil {
		return Status{}, d.comm.explain(ctx, name, err)
	}
	if err := p.land(ctx, landing); err != nil {
		return Status{}, opError(name, d.failed(ctx, err))
	}
	return Status{Source: got.Source, Tag: Tag(got.Tag), Count: got.Bytes / int(of.Size)}, nil
}

// land makes what has arrived visible to work that is queued from now on, and copies what has arrived in memory of the host to
// the device.
func (p *passage) land(ctx context.Context, landing *link.Landing) error {
	if err := p.device.FlushWrites(ctx); err != nil {
		return err
	}
	for _, part := range landing.Parts() {
		r := device.Region{Buffer: p.region.Buffer, Offset: p.region.Offset + part.At, Bytes: len(part.Bytes)}
		if err := p.device.CopyIn(ctx, r, part.Bytes); err != nil {
			return err
		}
	}
	return nil
}
