package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt trusts the pages of a file: a wrong page ID, offset or free list makes it
// panic, fault, or later overwrite pages in use. So this reader checks a file first,
// without a memory map, according to the layout in bbolt's internal/common (version 2;
// numbers are in native byte order).
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	pageHeader     = 16 // ID uint64, flags uint16, count uint16, overflow uint32
	metaBytes      = 64
	elementBytes   = 16 // of branch and leaf pages alike
	bucketBytes    = 16 // root page ID, sequence
	firstDataPage  = 2  // after the two meta pages
	pageBytesMin   = 1 << 10
	pageBytesMax   = 1 << 24
	fileBytesMax   = 1 << 30
	treeDepthMax   = 64
	branchFlag     = 0x01
	leafFlag       = 0x02
	freelistFlag   = 0x10
	bucketLeafFlag = 0x01
	longFreelist   = 0xFFFF // the count is the first ID
)

// errForeign reports a file without a header of bbolt.
var errForeign = errors.New("it is not a file that nexar wrote")

// A pair is a key and its value.
type pair struct{ key, value []byte }

// A meta is one of the two headers of a bbolt file, which transactions write in turn.
type meta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	pages    uint64 // number of pages
	txid     uint64
}

func parseMeta(b []byte) (m meta, foreign, ok bool) {
	e := binary.NativeEndian
	if e.Uint32(b) != boltMagic {
		return m, true, false
	}
	h := fnv.New64a()
	h.Write(b[:metaBytes-8])
	m = meta{
		pageSize: e.Uint32(b[8:]), root: e.Uint64(b[16:]), freelist: e.Uint64(b[32:]),
		pages: e.Uint64(b[40:]), txid: e.Uint64(b[48:]),
	}
	ok = e.Uint32(b[4:]) == boltVersion && e.Uint64(b[56:]) == h.Sum64() &&
		m.pageSize >= pageBytesMin && m.pageSize <= pageBytesMax && m.pageSize&(m.pageSize-1) == 0
	return m, false, ok
}

// readMeta returns the newest valid header, as bbolt does.
func readMeta(f io.ReaderAt) (m meta, err error) {
	read := func(at int64) (meta, bool, bool) {
		b := make([]byte, metaBytes)
		if _, err := f.ReadAt(b, at+pageHeader); err != nil {
			return meta{}, true, false
		}
		return parseMeta(b)
	}
	foreign := true
	m, isForeign, ok := read(0)
	foreign = foreign && isForeign
	for size := int64(pageBytesMin); size <= pageBytesMax; size *= 2 {
		if ok && size != int64(m.pageSize) {
			continue
		}
		other, isForeign, otherOK := read(size)
		foreign = foreign && isForeign
		if !otherOK || int64(other.pageSize) != size {
			continue
		}
		if !ok || other.txid > m.txid {
			return other, nil
		}
	}
	switch {
	case ok:
		return m, nil
	case foreign:
		return m, errForeign
	}
	return m, errors.New("neither of its two headers is valid")
}

// readBuckets reads all buckets of a bbolt file in key order, and checks each page: it
// belongs to the tree, once, or to the free list.
func readBuckets(f io.ReaderAt, size int64) (map[string][]pair, error) {
	m, err := readMeta(f)
	if err != nil {
		return nil, err
	}
	length := m.pages * uint64(m.pageSize)
	switch {
	case m.pages <= firstDataPage || m.pages > fileBytesMax/uint64(m.pageSize):
		return nil, fmt.Errorf("its header counts %d pages of %d bytes, expected 3 to %d", m.pages, m.pageSize, fileBytesMax/m.pageSize)
	case length > uint64(size):
		return nil, fmt.Errorf("it is truncated: %d bytes long, and its header counts %d", size, length)
	}
	r := &pageReader{data: make([]byte, length), size: uint64(m.pageSize), used: make([]bool, m.pages)}
	if _, err := f.ReadAt(r.data, 0); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	top, err := r.tree(m.root)
	if err != nil {
		return nil, err
	}
	buckets := make(map[string][]pair)
	for _, e := range top {
		if !e.bucket {
			return nil, errForeign
		}
		if buckets[string(e.key)], err = r.bucket(e.value); err != nil {
			return nil, err
		}
	}
	return buckets, r.free(m.freelist)
}

// A pageReader reads the pages of a bbolt file in memory.
type pageReader struct {
	data []byte
	size uint64
	used []bool // by page: it is in the tree or in the free list
}

// A page is a page with its overflow pages.
type page struct {
	body  []byte // with the header
	flags uint16
	count int
}

func (r *pageReader) page(id uint64) (p page, err error) {
	if id < firstDataPage || id >= uint64(len(r.used)) {
		return p, fmt.Errorf("it refers to page %d, expected one from %d to %d", id, firstDataPage, len(r.used)-1)
	}
	header := r.data[id*r.size:]
	p = parsePage(header)
	overflow := uint64(binary.NativeEndian.Uint32(header[12:]))
	if got := binary.NativeEndian.Uint64(header); got != id || id+overflow >= uint64(len(r.used)) {
		return p, fmt.Errorf("the header of page %d is damaged", id)
	}
	p.body = header[:(overflow+1)*r.size]
	for i := id; i <= id+overflow; i++ {
		if r.used[i] {
			return p, fmt.Errorf("page %d is in use twice", i)
		}
		r.used[i] = true
	}
	return p, nil
}

func parsePage(header []byte) page {
	return page{body: header, flags: binary.NativeEndian.Uint16(header[8:]), count: int(binary.NativeEndian.Uint16(header[10:]))}
}

// An element is an element of a leaf page.
type element struct {
	pair
	bucket bool
}

// tree reads the leaves of a tree.
func (r *pageReader) tree(root uint64) ([]element, error) {
	all, err := r.subtree(root, 0)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(all); i++ {
		if bytes.Compare(all[i-1].key, all[i].key) >= 0 {
			return nil, fmt.Errorf("the keys in the pages below page %d are not in order", root)
		}
	}
	return all, nil
}

func (r *pageReader) subtree(id uint64, depth int) (all []element, err error) {
	p, err := r.page(id)
	switch {
	case err != nil:
		return nil, err
	case depth > treeDepthMax:
		return nil, fmt.Errorf("page %d is %d levels deep", id, depth)
	case p.flags == leafFlag:
		return p.leaf()
	case p.flags != branchFlag || p.count == 0:
		return nil, fmt.Errorf("page %d is of type %#x with %d elements, expected a branch or a leaf", id, p.flags, p.count)
	}
	for i := range p.count {
		e, err := p.element(i)
		if err != nil {
			return nil, err
		}
		key, err := p.slice(i, binary.NativeEndian.Uint32(e), 0, binary.NativeEndian.Uint32(e[4:]))
		if err != nil {
			return nil, err
		}
		below, err := r.subtree(binary.NativeEndian.Uint64(e[8:]), depth+1)
		if err != nil {
			return nil, err
		}
		// bbolt finds the element to change by the first key of the child page.
		if len(below) == 0 || !bytes.Equal(below[0].key, key) {
			return nil, fmt.Errorf("element %d of page %d does not have the key of the page that it refers to", i, id)
		}
		all = append(all, below...)
	}
	return all, nil
}

// element returns the fixed part of an element.
func (p page) element(i int) ([]byte, error) {
	at := pageHeader + elementBytes*i
	if at+elementBytes > len(p.body) {
		return nil, fmt.Errorf("a page counts %d elements, more than it has room for", p.count)
	}
	return p.body[at : at+elementBytes], nil
}

// slice returns a part of the page at a position relative to an element.
func (p page) slice(i int, position, skip, length uint32) ([]byte, error) {
	from := uint64(pageHeader+elementBytes*i) + uint64(position) + uint64(skip)
	to := from + uint64(length)
	if from < uint64(pageHeader+elementBytes*p.count) || to > uint64(len(p.body)) {
		return nil, fmt.Errorf("element %d of a page lies outside of the page", i)
	}
	return p.body[from:to], nil
}

func (p page) leaf() ([]element, error) {
	all := make([]element, 0, p.count)
	for i := range p.count {
		b, err := p.element(i)
		if err != nil {
			return nil, err
		}
		flags, position := binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
		keySize, valueSize := binary.NativeEndian.Uint32(b[8:]), binary.NativeEndian.Uint32(b[12:])
		key, err := p.slice(i, position, 0, keySize)
		if err != nil {
			return nil, err
		}
		value, err := p.slice(i, position, keySize, valueSize)
		if err != nil {
			return nil, err
		}
		if len(key) == 0 || flags&^bucketLeafFlag != 0 {
			return nil, fmt.Errorf("element %d of a page has flags %#x and a key of %d bytes", i, flags, len(key))
		}
		all = append(all, element{pair{key, value}, flags == bucketLeafFlag})
	}
	return all, nil
}

// bucket reads a bucket: a separate tree, or a leaf page in the value.
func (r *pageReader) bucket(value []byte) ([]pair, error) {
	if len(value) < bucketBytes {
		return nil, fmt.Errorf("a bucket has %d bytes, expected at least %d", len(value), bucketBytes)
	}
	root, inline := binary.NativeEndian.Uint64(value), value[bucketBytes:]
	var all []element
	var err error
	switch {
	case root != 0 && len(inline) == 0:
		all, err = r.tree(root)
	case root == 0 && len(inline) >= pageHeader && parsePage(inline).flags == leafFlag:
		all, err = parsePage(inline).leaf()
	default:
		err = fmt.Errorf("a bucket refers to page %d and has %d bytes", root, len(value))
	}
	if err != nil {
		return nil, err
	}
	pairs := make([]pair, 0, len(all))
	for i, e := range all {
		if e.bucket || i > 0 && bytes.Compare(all[i-1].key, e.key) >= 0 {
			return nil, fmt.Errorf("element %d of a bucket is a bucket or out of order", i)
		}
		pairs = append(pairs, e.pair)
	}
	return pairs, nil
}

// free checks that the free list has exactly the pages outside the tree, since bbolt
// writes to them. A file without a list is refused: nexar writes none, and bbolt would
// load it on a separate goroutine, where a fault cannot be recovered.
func (r *pageReader) free(id uint64) error {
	p, err := r.page(id)
	if err != nil {
		return fmt.Errorf("free list: %w", err)
	}
	if p.flags != freelistFlag {
		return fmt.Errorf("page %d is of type %#x, expected the free list", id, p.flags)
	}
	ids, count := p.body[pageHeader:], uint64(p.count)
	if p.count == longFreelist {
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return fmt.Errorf("the free list counts %d pages, more than it has room for", count)
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(ids[8*i:])
		if free < firstDataPage || free >= uint64(len(r.used)) || r.used[free] {
			return fmt.Errorf("page %d is in the free list and in use, or out of range", free)
		}
		r.used[free] = true
	}
	for i := firstDataPage; i < len(r.used); i++ {
		if !r.used[i] {
			return fmt.Errorf("page %d is neither in use nor in the free list", i)
		}
	}
	return nil
}
