package nexar_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
)

// Rank 0 has its gradient on a device and rank 1 in a slice. Both call the same collective.
func ExampleComm_WithStream() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 2, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks sync.WaitGroup
	ranks.Go(func() {
		defer comms[1].Close()
		gradient := []float32{10, 20, 30}
		if err := nexar.AllReduce(ctx, comms[1], gradient, nexar.Sum); err != nil {
			log.Fatal(err)
		}
	})

	defer comms[0].Close()
	var dev device.Device = host.Device{} // or that of an accelerator
	gradient, err := onDevice(ctx, dev, []float32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	defer gradient.Free()
	stream, err := dev.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()

	// The all-reduce follows the work queued on the stream, such as the computation of the
	// gradient.
	err = comms[0].WithStream(stream).AllReduce(ctx, device.Float32, device.Whole(gradient), nexar.Sum)
	if err != nil {
		log.Fatal(err)
	}
	ranks.Wait()
	sum, err := onHost(ctx, gradient)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum)
	// Output: [11 22 33]
}

// Send a column of a matrix as one message, and receive it as a column.
func ExampleDeviceComm_Send() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 1, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer comms[0].Close()
	dev := host.Device{}
	matrix, err := onDevice(ctx, dev, []float32{
		1, 2, 3,
		4, 5, 6,
		7, 8, 9,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer matrix.Free()
	stream, err := dev.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()

	const row, tag = 3 * 4, 7 // bytes
	column := func(i int) device.Region {
		return device.Region{Buffer: matrix, Offset: i * 4, Bytes: 4, Rows: 3, Stride: row}
	}
	c := comms[0].WithStream(stream)
	if err := c.Send(ctx, device.Float32, 0, tag, column(0)); err != nil {
		log.Fatal(err)
	}
	status, err := c.Recv(ctx, device.Float32, 0, tag, column(2))
	if err != nil {
		log.Fatal(err)
	}
	all, err := onHost(ctx, matrix)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Count, "elements")
	for i := range 3 {
		fmt.Println(all[3*i : 3*i+3])
	}
	// Output:
	// 3 elements
	// [1 2 1]
	// [4 5 4]
	// [7 8 7]
}

// onDevice returns a buffer with a copy of x.
func onDevice(ctx context.Context, dev device.Device, x []float32) (device.Buffer, error) {
	bytes, err := binary.Append(nil, binary.NativeEndian, x)
	if err != nil {
		return nil, err
	}
	b, err := dev.Alloc(ctx, len(bytes))
	if err != nil {
		return nil, err
	}
	return b, dev.CopyIn(ctx, device.Whole(b), bytes)
}

// onHost returns a copy of the contents of a buffer.
func onHost(ctx context.Context, b device.Buffer) ([]float32, error) {
	bytes, x := make([]byte, b.Len()), make([]float32, b.Len()/4)
	if err := b.Device().CopyOut(ctx, bytes, device.Whole(b)); err != nil {
		return nil, err
	}
	_, err := binary.Decode(bytes, binary.NativeEndian, x)
	return x, err
}
