package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A slowStream takes ten minutes for a wait, and for a copy to the device.
type slowStream struct{ device.Stream }

const deviceTime = 10 * time.Minute

func (s slowStream) Wait(ctx context.Context) error {
	select {
	case <-time.After(deviceTime):
		return s.Stream.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slowStream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	time.Sleep(deviceTime)
	return s.Stream.ReceiveInto(src, at, dst...)
}

func recvSixteen(ctx context.Context, c *nexar.Comm) error {
	_, err := nexar.Recv(ctx, c, make([]int32, 16), 0, 2)
	return err
}

// TestDeviceIsNoDeadlock: a goroutine of rank 0 waits for a message of rank 1, and another one for its device, before or after a call
// that rank 1 waits for. They are in no deadlock, however long the device works.
func TestDeviceIsNoDeadlock(t *testing.T) {
	mapped := func(*testing.T) device.Device { return host.Device{} }
	staged := func(t *testing.T) device.Device { return devicetest.NewFake(t, devicetest.FakeConfig{DelayMax: -1}) }
	reduce := func(ctx context.Context, d nexar.DeviceComm, r device.Region) error {
		return d.AllReduce(ctx, device.Int32, r, nexar.Sum)
	}
	reduceSlices := func(ctx context.Context, c *nexar.Comm) error {
		return nexar.AllReduce(ctx, c, make([]int32, 16), nexar.Sum)
	}
	for name, test := range map[string]struct {
		device func(t *testing.T) device.Device
		call   func(ctx context.Context, d nexar.DeviceComm, r device.Region) error
		other  func(ctx context.Context, c *nexar.Comm) error // of rank 1
	}{
		"the input of a collective": {mapped, reduce, reduceSlices},
		"the result of a collective": {staged, func(ctx context.Context, d nexar.DeviceComm, r device.Region) error {
			return errors.Join(reduce(ctx, d, r), d.Send(ctx, device.Int32, 1, 2, r))
		}, func(ctx context.Context, c *nexar.Comm) error {
			return errors.Join(reduceSlices(ctx, c), recvSixteen(ctx, c))
		}},
		"a message": {mapped, func(ctx context.Context, d nexar.DeviceComm, r device.Region) error {
			return d.Send(ctx, device.Int32, 1, 2, r)
		}, recvSixteen},
		"the input of a handle": {mapped, func(ctx context.Context, d nexar.DeviceComm, r device.Region) error {
			return d.StartAllReduce(ctx, device.Int32, r, nexar.Sum).Wait()
		}, reduceSlices},
	} {
		t.Run(name, func(t *testing.T) {
			stalled(t, 2, nexar.Config{DeadlockTimeout: 20 * time.Second}, func(t *testing.T, comms world, log *testlog.Buffer) {
				dev := test.device(t)
				stream, err := dev.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				buffer, err := dev.Alloc(t.Context(), 4*16)
				if err != nil {
					t.Fatal(err)
				}
				defer buffer.Free()
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if rank == 1 {
						return errors.Join(test.other(t.Context(), c), nexar.Send(t.Context(), c, []int32{1}, 0, 1))
					}
					began, heard := time.Now(), make(chan error, 1)
					go func() { heard <- recvInt(t.Context(), c, 1, 1) }()
					err := errors.Join(test.call(t.Context(), c.WithStream(slowStream{stream}), device.Whole(buffer)), <-heard)
					if took := time.Since(began); took < deviceTime {
						t.Errorf("the calls took %v, want the time of the device, %v", took, deviceTime)
					}
					return err
				})
				noDeadlock(t, log)
			})
		})
	}
}
