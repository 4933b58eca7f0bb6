package raftlog

import "testing"

// Any file is read or refused: no length in it is trusted.
func FuzzContents(f *testing.F) {
	b, err := newContents(1<<40, []uint64{1 << 40}).marshal()
	if err != nil {
		f.Fatal(err)
	}
	for n := range len(b) + 1 {
		f.Add(b[:n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := parseContents(b); (c == nil) == (err == nil) {
			t.Errorf("contents %v and error %v", c, err)
		}
	})
}
