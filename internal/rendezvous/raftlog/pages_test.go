package raftlog

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// The reader detects damaged pages with which bbolt would overwrite pages in use, fault or lose
// entries.
func TestPages(t *testing.T) {
	t.Parallel()
	h := newHistory(t, rand.New(rand.NewPCG(3, 4)), 100, false)
	sound := h.past[len(h.past)-1][databaseFile]
	size := os.Getpagesize()
	m, err := readMeta(bytes.NewReader(sound))
	if err != nil {
		t.Fatal(err)
	}
	e := binary.NativeEndian
	list := int(m.freelist) * size
	if e.Uint16(sound[list+10:]) < 2 {
		t.Fatal("fewer than two free pages")
	}
	root := int(m.root) * size
	free := make(map[uint64]bool)
	for i := range int(e.Uint16(sound[list+10:])) {
		free[e.Uint64(sound[list+pageHeader+8*i:])] = true
	}
	var branch int
	for p := 2 * size; p < int(m.pages)*size; p += size {
		if !free[uint64(p/size)] && e.Uint16(sound[p+8:]) == branchFlag && e.Uint16(sound[p+10:]) > 1 {
			branch = p
		}
	}
	if branch == 0 {
		t.Fatal("no branch page")
	}
	cases := map[string]struct {
		change func(b []byte)
		want   string
	}{
		"free page in use":   {func(b []byte) { e.PutUint64(b[list+pageHeader:], m.root) }, "in the free list and in use"},
		"free page twice":    {func(b []byte) { copy(b[list+pageHeader:], b[list+pageHeader+8:][:8]) }, "in the free list and in use"},
		"free page missing":  {func(b []byte) { e.PutUint16(b[list+10:], e.Uint16(b[list+10:])-1) }, "neither in use nor in the free list"},
		"long free list":     {func(b []byte) { e.PutUint16(b[list+10:], longFreelist); e.PutUint64(b[list+pageHeader:], 1<<62) }, "more than it has room for"},
		"no free list":       {func(b []byte) { e.PutUint16(b[list+8:], leafFlag) }, "expected the free list"},
		"page ID":            {func(b []byte) { b[root] ^= 1 }, "is damaged"},
		"page overflow":      {func(b []byte) { e.PutUint32(b[root+12:], 1<<31) }, "is damaged"},
		"page type":          {func(b []byte) { e.PutUint16(b[root+8:], 4) }, "expected a branch or a leaf"},
		"number of elements": {func(b []byte) { e.PutUint16(b[root+10:], 60000) }, "outside of the page"},
		"element":            {func(b []byte) { e.PutUint32(b[root+pageHeader+12:], 1<<31) }, "outside of the page"},
		"loop":               {func(b []byte) { copy(b[branch+pageHeader+8:], b[branch:][:8]) }, "in use twice"},
		"branch key":         {func(b []byte) { b[branch+pageHeader+int(e.Uint32(b[branch+pageHeader:]))] ^= 1 }, "does not have the key"},
		"truncated":          {func(b []byte) {}, "it is truncated"},
	}
	for name, c := range cases {
		b := bytes.Clone(sound)
		c.change(b)
		length := int64(len(b))
		if name == "truncated" {
			length = int64(m.pages)*int64(size) - 1
		}
		if _, err := readBuckets(bytes.NewReader(b[:length]), length); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// A missing or outdated entry has its own valid checksum.
func TestDigest(t *testing.T) {
	t.Parallel()
	h := newHistory(t, rand.New(rand.NewPCG(5, 6)), 50, false)
	sound := h.past[len(h.past)-1][databaseFile]
	read := func() map[string][]pair {
		buckets, err := readBuckets(bytes.NewReader(sound), int64(len(sound)))
		if err != nil {
			t.Fatal(err)
		}
		return buckets
	}
	if _, err := parseContents(read()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b map[string][]pair){
		"the last entry is missing":  func(b map[string][]pair) { b[entriesBucket] = b[entriesBucket][:len(b[entriesBucket])-1] },
		"the first entry is missing": func(b map[string][]pair) { b[entriesBucket] = b[entriesBucket][1:] },
		"another last entry": func(b map[string][]pair) {
			e := proto.CloneOf(h.entries[len(h.entries)-1])
			e.Data = []byte("another")
			payload, err := proto.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			b[entriesBucket][len(b[entriesBucket])-1].value, _ = encodeValue(string(indexKey(e.GetIndex())), payload)
		},
	} {
		b := read()
		change(b)
		if _, err := parseContents(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
