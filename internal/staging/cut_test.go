package staging

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
)

// bytesOf returns the offsets of all bytes of regions, in their order.
func bytesOf(regions []device.Region) (offsets []int) {
	for _, r := range regions {
		for row := range r.RowCount() {
			for i := range r.Bytes {
				offsets = append(offsets, r.RowAt(row)+i)
			}
		}
	}
	return offsets
}

// cut returns the requested bytes in few pieces, and the same pieces for all forms of the regions.
func TestCut(t *testing.T) {
	const size = 60
	b := host.Of(make([]byte, size))
	drawRegion := rapid.Custom(func(r *rapid.T) device.Region {
		region := device.Region{Buffer: b, Bytes: rapid.IntRange(0, 12).Draw(r, "bytes")}
		region.Offset = rapid.IntRange(0, size-region.Bytes).Draw(r, "offset")
		region.Stride = region.Bytes + rapid.IntRange(0, 2).Draw(r, "gap")
		if region.Stride > 0 {
			region.Rows = rapid.IntRange(0, (size-region.Bytes-region.Offset)/region.Stride+1).Draw(r, "rows")
		}
		return region
	})
	rapid.Check(t, func(r *rapid.T) {
		regions := rapid.SliceOfN(drawRegion, 0, 4).Draw(r, "regions")
		all := bytesOf(regions)
		at := rapid.IntRange(0, len(all)).Draw(r, "at")
		n := rapid.IntRange(0, len(all)-at).Draw(r, "n")
		pieces := cut(regions, at, n)
		if _, err := device.Check(host.Device{}, pieces...); err != nil {
			r.Fatal(err)
		}
		if got := bytesOf(pieces); !slices.Equal(got, all[at:at+n]) {
			r.Errorf("%d bytes at %d: got those at %v, want %v", n, at, got, all[at:at+n])
		}
		if len(pieces) > 3*len(regions) {
			r.Errorf("%d bytes at %d of %d regions are %d pieces, want at most 3 of each", n, at, len(regions), len(pieces))
		}
		if again := cut(pieces, 0, n); !slices.Equal(again, pieces) {
			r.Errorf("cut once %+v, cut twice %+v", pieces, again)
		}
	})
}

func TestCutMakesRowsOne(t *testing.T) {
	b := host.Of(make([]byte, 100))
	want := []device.Region{{Buffer: b, Offset: 10, Bytes: 20}}
	for _, r := range []device.Region{
		{Buffer: b, Offset: 10, Bytes: 20},
		{Buffer: b, Offset: 10, Bytes: 20, Rows: 1, Stride: 33},
		{Buffer: b, Offset: 10, Bytes: 5, Rows: 4, Stride: 5},
		{Buffer: b, Offset: 10, Bytes: 5, Rows: 9, Stride: 5},
	} {
		if got := cut([]device.Region{r}, 0, 20); !slices.Equal(got, want) {
			t.Errorf("20 bytes of %+v are %+v, want %+v", r, got, want)
		}
	}
}
