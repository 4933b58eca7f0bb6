package devicetest

import (
	"fmt"

	"github.com/nexar-go/nexar/device"
)

// testCopySizes: CopyOut returns the bytes of CopyIn, for all lengths.
func testCopySizes(x *check) {
	for _, n := range sizes() {
		b, data := x.filled(n)
		x.want(b, data, fmt.Sprintf("buffer of %d bytes", n))
		data = x.random(n)
		x.copyIn(device.Whole(b), data)
		x.want(b, data, fmt.Sprintf("buffer of %d bytes, filled again", n))
	}
}

// testCopyOffsets: copies begin and end at the right bytes, for all offsets and addresses.
func testCopyOffsets(x *check) {
	const size = 200
	for _, n := range []int{0, 1, 2, 8, 15, 64, 100} {
		for offset := 0; offset+n <= size; offset += 9 {
			b, data := x.filled(size)
			r := device.Region{Buffer: b, Offset: offset, Bytes: n}
			what := fmt.Sprintf("%d bytes at %d", n, offset)

			// The slices are unaligned.
			out := x.random(n + 1)[1:]
			x.must(x.d.CopyOut(x.ctx, out, r), "copy out")
			x.same(out, data[offset:offset+n], "copy out of "+what)

			in := x.random(n + 1)[1:]
			sent := append([]byte(nil), in...)
			x.copyIn(r, in)
			x.same(in, sent, "src of a copy in")
			copy(data[offset:], in)
			x.want(b, data, "copy in to "+what)
		}
	}
}

// testCopyRows: all rows of a region are copied.
func testCopyRows(x *check) {
	b, data := x.filled(layoutBytes)
	for _, list := range layouts(b) {
		for _, r := range list {
			what := fmt.Sprintf("%d rows of %d bytes at %d with stride %d", r.Rows, r.Bytes, r.Offset, r.Stride)
			out := x.random(r.Total())
			x.must(x.d.CopyOut(x.ctx, out, r), "copy out")
			x.same(out, gather(data, r), "copy out of "+what)
			in := x.random(r.Total())
			x.copyIn(r, in)
			scatter(data, in, r)
			x.want(b, data, "copy in to "+what)
		}
	}
}

// testStageSend: StageSend concatenates the regions in staging memory, and changes no other
// bytes.
func testStageSend(x *check) {
	s := x.stream()
	b, data := x.filled(layoutBytes)
	for i, list := range layouts(b) {
		for _, at := range []int{0, 1, 64, 129} {
			want := gather(data, list...)
			before := x.random(at + len(want) + 70)
			st := x.staged(before)
			x.must(s.StageSend(st, at, list...), "stage send")
			copy(before[at:], want)
			x.same(x.bytes(st), before, fmt.Sprintf("StageSend of layout %d to offset %d", i, at))
		}
	}
	x.want(b, data, "source of StageSend")
}

// testReceiveInto: ReceiveInto copies staging memory to the regions, and changes no other bytes.
func testReceiveInto(x *check) {
	s := x.stream()
	b, data := x.filled(layoutBytes)
	for i, list := range layouts(b) {
		for _, at := range []int{0, 1, 64, 129} {
			n := len(gather(data, list...))
			all := x.random(at + n + 70)
			st := x.staged(all)
			x.must(s.ReceiveInto(st, at, list...), "receive into")
			x.wait(s)
			scatter(data, all[at:at+n], list...)
			x.want(b, data, fmt.Sprintf("ReceiveInto of layout %d from offset %d", i, at))
			x.same(x.bytes(st), all, "source of ReceiveInto")
		}
	}
}

// testLastRegionCounts: regions may occur several times and overlap; the last one has priority.
func testLastRegionCounts(x *check) {
	s := x.stream()
	b, data := x.filled(100)
	list := []device.Region{
		{Buffer: b, Offset: 10, Bytes: 40},
		{Buffer: b, Offset: 30, Bytes: 40},
		{Buffer: b, Offset: 15, Bytes: 5, Rows: 4, Stride: 10},
	}
	st := x.staged(x.random(100))
	x.must(s.ReceiveInto(st, 0, list...), "receive into")
	x.wait(s)
	scatter(data, x.bytes(st), list...)
	x.want(b, data, "ReceiveInto of overlapping regions")

	list = append(list, list[0], list[0])
	st = x.stage(len(gather(data, list...)))
	x.must(s.StageSend(st, 0, list...), "stage send")
	x.same(x.bytes(st), gather(data, list...), "StageSend of overlapping regions")
}

// testCopy: copies on the device, between two buffers and within one.
func testCopy(x *check) {
	const size = 400
	s := x.stream()
	for _, test := range []struct {
		dst, src device.Region // of two buffers, or of the first if same
		same     bool
	}{
		{dst: device.Region{Bytes: size}, src: device.Region{Bytes: size}},
		{dst: device.Region{Offset: 3, Bytes: 90}, src: device.Region{Offset: 250, Bytes: 90}},
		{dst: device.Region{Offset: 3, Bytes: 90}, src: device.Region{Offset: 93, Bytes: 90}, same: true},
		{dst: device.Region{Offset: 93, Bytes: 90}, src: device.Region{Offset: 3, Bytes: 90}, same: true},
		{dst: device.Region{Offset: 1, Bytes: 2, Rows: 30, Stride: 13}, src: device.Region{Offset: 40, Bytes: 2, Rows: 30, Stride: 5}},
		{dst: device.Region{Offset: 100, Bytes: 4, Rows: 10, Stride: 4}, src: device.Region{Offset: 9, Bytes: 4, Rows: 10, Stride: 40}},
		{dst: device.Region{Offset: 0, Bytes: 5, Rows: 20, Stride: 20}, src: device.Region{Offset: 10, Bytes: 5, Rows: 20, Stride: 20}, same: true},
		{dst: device.Region{Offset: 7}, src: device.Region{Offset: 7, Rows: 9}, same: true},
	} {
		a, into := x.filled(size)
		b, from := x.filled(size)
		test.dst.Buffer, test.src.Buffer = a, b
		if test.same {
			test.src.Buffer, from = a, into
		}
		what := fmt.Sprintf("copy of %+v", [2][4]int{
			{test.dst.Offset, test.dst.Bytes, test.dst.Rows, test.dst.Stride},
			{test.src.Offset, test.src.Bytes, test.src.Rows, test.src.Stride},
		})
		x.must(s.Copy(test.dst, test.src), what)
		x.wait(s)
		scatter(into, gather(from, test.src), test.dst)
		x.want(a, into, what)
		if !test.same {
			x.want(b, from, "source of "+what)
		}
	}
}

// testStagingIsApart: staging memory and buffers do not share memory.
func testStagingIsApart(x *check) {
	s := x.stream()
	b, data := x.filled(300)
	st := x.stage(300)
	x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
	staged := x.bytes(st)
	copy(staged, x.random(300))
	x.want(b, data, "buffer after a change of its staged copy")

	copy(staged, data)
	x.copyIn(device.Whole(b), x.random(300))
	x.same(staged, data, "staged copy after a change of the buffer")

	x.must(s.ReceiveInto(st, 0, device.Whole(b)), "receive into")
	x.wait(s)
	copy(x.bytes(st), x.random(300))
	x.want(b, data, "buffer after a change of the staging that it was received from")
	if again := x.bytes(st); &again[0] != &staged[0] {
		x.Error("Bytes returns different slices")
	}
}
