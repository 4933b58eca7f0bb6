package staging

import "github.com/nexar-go/nexar/device"

// cut returns the regions of n bytes from byte at on. Rows without gaps become one row, so that the
// result does not depend on how the regions were cut.
func cut(regions []device.Region, at, n int) (list []device.Region) {
	for _, r := range regions {
		if r.Stride == r.Bytes {
			r.Bytes, r.Rows = r.Total(), 1
		}
		total := r.Total()
		for n > 0 && at < total {
			row, skip := at/r.Bytes, at%r.Bytes
			piece := device.Region{Buffer: r.Buffer, Offset: r.RowAt(row) + skip, Bytes: min(r.Bytes-skip, n)}
			if rows := min(r.RowCount()-row, n/r.Bytes); skip == 0 && rows > 1 {
				piece.Rows, piece.Stride = rows, r.Stride
			}
			list = append(list, piece)
			at += piece.Total()
			n -= piece.Total()
		}
		at -= total
	}
	return list
}
