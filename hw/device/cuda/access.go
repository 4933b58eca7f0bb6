package cuda

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/device"
)

// Access returns a buffer of this GPU for the memory of a buffer of any GPU of this process, which this GPU accesses
// directly. Both buffers have the same memory. The memory is not returned to its GPU before both are freed. It is an
// error if the GPUs cannot access each other. For memory of other processes see [Device.Import].
func (d *Device) Access(b device.Buffer) (device.Buffer, error) {
	other, ok := b.(*buffer)
	if !ok {
		return nil, d.named(fmt.Errorf("the buffer is of device %s, not of a GPU", b.Device().Name()))
	}
	if err := other.hold(); err != nil {
		return nil, err
	}
	err := d.do(context.Background(), "cuCtxEnablePeerAccess", func() error {
		if err := d.check(); err != nil {
			return err
		}
		if d.ctx == other.d.ctx {
			return nil
		}
		can, err := d.drv.DeviceCanAccessPeer(d.dev, other.d.dev)
		if err != nil {
			return err
		}
		if !can {
			return fmt.Errorf("this GPU cannot access the memory of %s", other.d.name)
		}
		return d.drv.CtxEnablePeerAccess(other.d.ctx)
	}, nil)
	if err != nil {
		other.letGo()
		return nil, d.named(err)
	}
	own := &buffer{memory{d: d, pool: &d.memory, addr: other.addr, bytes: other.bytes}}
	own.release = func() { go other.letGo() } // which takes the lock of the other device
	return own, nil
}
