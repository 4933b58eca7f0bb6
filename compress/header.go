package compress

import (
	"encoding/binary"
	"fmt"

	"github.com/nexar-go/nexar/device"
)

// A kind is the method of an encoding.
type kind uint8

// The kinds. Their values are part of the format.
const (
	kindNone kind = iota + 1
	kindTopK
	kindRandomK
	kindQuantize8
	kindCast16
)

var kindNames = [...]string{
	kindNone: "none", kindTopK: "top-k", kindRandomK: "random-k", kindQuantize8: "quantize-8", kindCast16: "cast-16",
}

func (k kind) String() string {
	if int(k) < len(kindNames) && k != 0 {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// malformed returns the error of decoding an invalid encoding as kind k.
func (k kind) malformed(offset int, format string, args ...any) error {
	return &FormatError{Kind: k.String(), Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// version is the version of all encodings. A change of any of them increments it.
const version = 1

// Every encoding begins with a header: the version, the kind, the element type, a zero byte,
// a parameter of the kind, and the number of elements. All integers and elements are
// little-endian.
const (
	kindOffset  = 1
	typeOffset  = 2
	zeroOffset  = 3
	paramOffset = 4
	countOffset = 8
	headerBytes = 16
)

// A header is the part of the header that depends on the vector and the configuration.
type header struct {
	kind  kind
	typ   device.Type
	param uint32
	n     int // elements
}

// typeCode returns the byte of an element type in the header. It is 0 for float32.
func typeCode(t device.Type) byte {
	if t == device.Float32 {
		return 0
	}
	return byte(t)
}

func (h header) append(dst []byte) []byte {
	dst = append(dst, version, byte(h.kind), typeCode(h.typ), 0)
	dst = binary.LittleEndian.AppendUint32(dst, h.param)
	return binary.LittleEndian.AppendUint64(dst, uint64(h.n))
}

// cut checks the header of an encoding against h, except for the parameter. It returns the
// parameter and the rest of the encoding.
func (h header) cut(encoded []byte) (param uint32, body []byte, err error) {
	k := h.kind
	if len(encoded) < headerBytes {
		return 0, nil, k.malformed(len(encoded), "truncated header")
	}
	if encoded[0] != version {
		return 0, nil, k.malformed(0, "version %d, want %d", encoded[0], version)
	}
	if got := kind(encoded[kindOffset]); got != k {
		return 0, nil, k.malformed(kindOffset, "encoded by %s", got)
	}
	if got := encoded[typeOffset]; got != typeCode(h.typ) {
		t := device.Type(got)
		if got == 0 {
			t = device.Float32
		}
		return 0, nil, k.malformed(typeOffset, "elements of type %v, want %v", t, h.typ)
	}
	if got := encoded[zeroOffset]; got != 0 {
		return 0, nil, k.malformed(zeroOffset, "reserved byte is %d, want 0", got)
	}
	if got := binary.LittleEndian.Uint64(encoded[countOffset:]); got != uint64(h.n) {
		return 0, nil, k.malformed(countOffset, "vector of %d elements, want %d", got, h.n)
	}
	return binary.LittleEndian.Uint32(encoded[paramOffset:]), encoded[headerBytes:], nil
}

// cutPlain is cut for kinds without a parameter.
func (h header) cutPlain(encoded []byte) (body []byte, err error) {
	param, body, err := h.cut(encoded)
	if err == nil && param != 0 {
		return nil, h.kind.malformed(paramOffset, "parameter %d, want 0", param)
	}
	return body, err
}

// checkBytes returns an error unless the body of an encoding has n bytes.
func (k kind) checkBytes(body []byte, n int) error {
	switch {
	case len(body) < n:
		return k.malformed(headerBytes+len(body), "%d bytes are missing", n-len(body))
	case len(body) > n:
		return k.malformed(headerBytes+n, "%d bytes after the end", len(body)-n)
	}
	return nil
}
