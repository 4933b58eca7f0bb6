//go:build linux

package gpudirect

import (
	"context"
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/transport/rdma"
)

// TestMessage: the network cards move a message from one GPU to the other, and no byte goes through memory of the host.
func TestMessage(t *testing.T) {
	const n = 3 << 20
	for _, test := range []struct {
		method string
		refuse bool // dma-buf
	}{{rdma.MethodDMABuf, false}, {rdma.MethodPeerMemory, true}} {
		t.Run(test.method, func(t *testing.T) {
			f := newFakes(t)
			f.verbs.Refuse(test.refuse, false)
			var moved traffic
			inWorld(t, f, 2, func(ctx context.Context, r *rank) error {
				b := r.buffer(n)
				r.fill(b, r.me())
				r.wait(ctx)
				before := f.traffic()
				if err := exchange(ctx, r, device.Whole(b)); err != nil {
					return err
				}
				r.wait(ctx)
				if r.me() == 0 {
					moved = f.traffic().minus(before)
				}
				r.wait(ctx)
				if err := r.check("message", device.Whole(b), pattern(n, 0)); err != nil {
					return err
				}
				if got := r.Peers()[0].DeviceMemory; got != test.method {
					return fmt.Errorf("Peer.DeviceMemory is %q, want %q", got, test.method)
				}
				return nil
			})
			if want := (traffic{read: n, written: n}); moved != want {
				t.Errorf("a message of %d bytes: %+v, want %+v", n, moved, want)
			}
		})
	}
}

// exchange sends a region of rank 0 to rank 1.
func exchange(ctx context.Context, r *rank, region device.Region) error {
	if r.me() == 0 {
		return r.on().Send(ctx, device.Uint8, 1, 7, region)
	}
	s, err := r.on().Recv(ctx, device.Uint8, 0, 7, region)
	if err == nil && (s.Source != 0 || s.Count != region.Bytes) {
		err = fmt.Errorf("received %d bytes from rank %d, want %d from 0", s.Count, s.Source, region.Bytes)
	}
	return err
}
