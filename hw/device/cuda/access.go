package cuda

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/device"
)

// Access returns a buffer of this GPU for the memory of a buffer of any GPU of this process, which this GPU accesses
// directly. Both buffers have the same memory. The memory is not returned to its GPU before both are freed, and the
// [Device.Close] of its GPU fails until the buffer of Access is freed or its GPU closed. It is an error if the GPUs cannot
// access each other. For memory of other processes see [Device.Import].
func (d *Device) Access(b device.Buffer) (device.Buffer, error) {
	other, ok := b.(*buffer)
	if !ok {
		return nil, d.named(fmt.Errorf("the buffer is of device %s, not of a GPU", b.Device().Name()))
	}
	l, err := other.lend(d, false)
	if err != nil {
		return nil, err
	}
	own := &buffer{memory{d: d, pool: &d.memory, addr: other.addr, bytes: other.bytes, loan: l}}
	own.release = func() { other.takeBack(l) }
	err = d.do(context.Background(), "cuCtxEnablePeerAccess", func() error {
		if err := d.check(); err != nil {
			return err
		}
		if d.ctx == other.d.ctx {
			d.addMapped(own)
			return nil
		}
		can, err := d.drv.DeviceCanAccessPeer(d.dev, other.d.dev)
		if err != nil {
			return err
		}
		if !can {
			return fmt.Errorf("this GPU cannot access the memory of %s", other.d.name)
		}
		if err = d.drv.CtxEnablePeerAccess(other.d.ctx); err == nil {
			d.addMapped(own)
		}
		return err
	}, func() { d.removeMapped(own) })
	if err != nil {
		other.takeBack(l)
		return nil, d.named(err)
	}
	return own, nil
}
