package raftlog

import (
	"bytes"
	"testing"
)

// Any database is read or refused: no length in it is trusted.
func FuzzDatabase(f *testing.F) {
	f.Add([]byte{})
	f.Add(smallDatabase(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		buckets, err := readBuckets(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			parseContents(buckets)
		}
	})
}

// smallDatabase returns the database of a new log.
func smallDatabase(f *testing.F) []byte {
	f.Helper()
	cfg := testConfig(f.TempDir(), 3)
	d, _, err := openDisk(&cfg)
	if err != nil {
		f.Fatal(err)
	}
	if err := d.close(); err != nil {
		f.Fatal(err)
	}
	return readFiles(f, cfg.Dir)[databaseFile]
}

// Checksums protect the buckets of a database from a fuzzer, so pages are fuzzed
// separately, with a valid header.
func FuzzPages(f *testing.F) {
	f.Add(uint64(3), uint64(2), smallDatabase(f))
	f.Add(uint64(2), uint64(3), make([]byte, 5*pageBytesMin))
	f.Add(uint64(1), uint64(4), bytes.Repeat([]byte{2}, 8*pageBytesMin))
	f.Fuzz(func(t *testing.T, root, free uint64, b []byte) {
		const size = 4096
		if len(b) < 3*size {
			return
		}
		r := &pageReader{data: b[:len(b)/size*size], size: size, used: make([]bool, len(b)/size)}
		if elements, err := r.tree(root); err == nil {
			for _, e := range elements {
				r.bucket(e.value)
			}
		}
		r.free(free)
	})
}

func FuzzCounter(f *testing.F) {
	f.Add(encodeCounter([16]byte{1}, seal{7, 8}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == counterBytes {
			parseCounter(b)
		}
	})
}
