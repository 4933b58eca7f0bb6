package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"unsafe"

	"github.com/nexar-go/nexar"
)

// An Item is a named part of the state.
type Item interface {
	// name identifies the item in a checkpoint.
	name() string
	// part returns a copy of the elements or the value that this rank writes.
	part(rank, size int) (part, error)
	// load sets the item. The checkpoint has it as described.
	load(r *reader, t *tensor) error
}

// A part is the share of an item that one rank writes: elements of a vector, or a JSON value.
type part struct {
	elem   elem
	offset int // of the first element
	total  int // elements of the vector, on all ranks together
	bytes  []byte
	value  json.RawMessage // in place of elements
}

// An elem is the type of the elements of a vector.
type elem struct {
	Type string `json:"type"`
	Size int    `json:"size"` // in bytes
}

func elemOf[T nexar.Number]() elem {
	return elem{fmt.Sprintf("%T", *new(T)), int(unsafe.Sizeof(*new(T)))}
}

// bytesOf returns the memory of s.
func bytesOf[T nexar.Number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// Replicated is a vector that all ranks have, of the same length and with the same elements. Each rank writes a share of it. Load sets all of it.
func Replicated[T nexar.Number](name string, data []T) Item {
	return &vector[T]{title: name, data: data, total: len(data), isReplicated: true}
}

// Sharded is a vector of total elements. This rank has a part of it, from offset on. Parts of ranks may overlap, and together they must be all of it. Load
// sets the part that this rank has then, which may be another one than that which it has written.
func Sharded[T nexar.Number](name string, part []T, offset, total int) Item {
	return &vector[T]{title: name, data: part, offset: offset, total: total}
}

type vector[T nexar.Number] struct {
	title         string
	data          []T
	offset, total int
	isReplicated  bool
}

func (v *vector[T]) name() string { return v.title }

func (v *vector[T]) part(rank, size int) (part, error) {
	if v.offset < 0 || v.total < 0 || v.offset > v.total-len(v.data) {
		return part{}, fmt.Errorf("%q: %d elements from %d on are not within a vector of %d", v.title, len(v.data), v.offset, v.total)
	}
	p := part{elem: elemOf[T](), offset: v.offset, total: v.total}
	own := v.data
	if v.isReplicated {
		p.offset = len(own) * rank / size
		own = own[p.offset : len(own)*(rank+1)/size]
	}
	p.bytes = slices.Clone(bytesOf(own))
	return p, nil
}

func (v *vector[T]) load(r *reader, t *tensor) error {
	if want := elemOf[T](); t.elem != want {
		return fmt.Errorf("%q has elements of type %s with %d bytes, want %s with %d", v.title, t.Type, t.Size, want.Type, want.Size)
	}
	if t.Total != v.total {
		return fmt.Errorf("%q has %d elements, want %d", v.title, t.Total, v.total)
	}
	return r.read(t, bytesOf(v.data), v.offset, len(v.data))
}

// Value is a value that encoding/json can encode; v points to it. Rank 0 writes it, and Load sets it on all ranks.
func Value(name string, v any) Item { return &value{name, v} }

type value struct {
	title string
	v     any
}

func (v *value) name() string { return v.title }

func (v *value) part(rank, _ int) (part, error) {
	if rank != 0 {
		return part{}, nil
	}
	text, err := json.Marshal(v.v)
	if err != nil {
		return part{}, fmt.Errorf("%q: %w", v.title, err)
	}
	return part{value: text}, nil
}

func (v *value) load(_ *reader, t *tensor) error {
	if t.Value == nil {
		return fmt.Errorf("%q is a vector, want a value", v.title)
	}
	if err := json.Unmarshal(t.Value, v.v); err != nil {
		return fmt.Errorf("%q: %w", v.title, err)
	}
	return nil
}
