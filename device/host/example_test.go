package host_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
)

// exchange calls work with the bytes of a region, on any device.
func exchange(ctx context.Context, r device.Region, work func(data []byte)) (err error) {
	dev := r.Buffer.Device()
	// Mapped memory needs no copy.
	if m, ok := dev.(device.Mapper); ok && r.RowCount() == 1 {
		mem, err := m.Map(r.Buffer)
		if err != nil {
			return err
		}
		work(mem[r.Offset : r.Offset+r.Bytes])
		return nil
	}
	stream, err := dev.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	staging, err := dev.Stage(ctx, r.Total())
	if err != nil {
		return err
	}
	defer staging.Free()

	if err := stream.StageSend(staging, 0, r); err != nil {
		return err
	}
	data, err := staging.Bytes(ctx)
	if err != nil {
		return err
	}
	work(data)
	if err := stream.ReceiveInto(staging, 0, r); err != nil {
		return err
	}
	return stream.Wait(ctx)
}

// Double a row and a column of a matrix: the row in place, the column in staging memory.
func Example() {
	matrix := []byte{
		1, 2, 3,
		4, 5, 6,
		7, 8, 9,
	}
	b := host.Of(matrix)
	defer b.Free()
	row := device.Region{Buffer: b, Offset: 3, Bytes: 3}
	column := device.Region{Buffer: b, Offset: 2, Bytes: 1, Rows: 3, Stride: 3}
	for _, r := range []device.Region{row, column} {
		err := exchange(context.Background(), r, func(data []byte) {
			for i := range data {
				data[i] *= 2
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(matrix)
	// Output: [1 2 6 8 10 24 7 8 18]
}

// Add two vectors in place.
func ExampleDevice_NewStream() {
	s, err := host.Device{}.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	vector := func(elements ...uint16) (b []byte) {
		for _, e := range elements {
			b = binary.NativeEndian.AppendUint16(b, e)
		}
		return b
	}
	sum := vector(1, 2, 3)
	dst, src := host.Of(sum), host.Of(vector(10, 20, 30))
	err = s.(device.Reducer).Reduce(device.Whole(dst), device.Whole(src), device.Uint16, device.Sum)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		fmt.Println(binary.NativeEndian.Uint16(sum[2*i:]))
	}
	// Output:
	// 11
	// 22
	// 33
}
