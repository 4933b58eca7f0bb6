package transporttest

import "testing"

func TestPattern(t *testing.T) {
	data := newPattern()
	d := data.stream(3)
	whole := d.bytes(0, 3*patternLength)
	for _, off := range []int{0, 1, 65536, patternLength - 1, patternLength, 2*patternLength - 5} {
		for _, n := range []int{0, 1, 10, 65537} {
			p := d.bytes(off, n)
			if i := d.diff(p, off); i >= 0 {
				t.Errorf("bytes(%d, %d) differs from the stream at %d", off, n, i)
			}
			if i := d.diff(whole[off:off+n], off); i >= 0 {
				t.Errorf("bytes(%d, %d) differs at %d from a longer part of the stream", off, n, i)
			}
			if n < 10 {
				continue
			}
			for _, wrong := range []int{off + 1, off + 4096, off + 65536, off + 1<<20} {
				if d.diff(p, wrong) < 0 {
					t.Errorf("diff: %d bytes from %d equal those from %d", n, off, wrong)
				}
			}
			if data.stream(4).diff(p, off) < 0 {
				t.Errorf("diff: %d bytes of one stream equal those of another", n)
			}
			p[n-1] ^= 1
			if got := d.diff(p, off); got != n-1 {
				t.Errorf("diff = %d, want %d", got, n-1)
			}
		}
	}
}
