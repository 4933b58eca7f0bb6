package compress

import (
	"encoding/binary"
	"fmt"
)

// A kind is how a vector was encoded.
type kind uint8

// The kinds, with the numbers that encodings have.
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

// malformed is the error of an encoding for a Compressor of this kind.
func (k kind) malformed(offset int, format string, args ...any) error {
	return &FormatError{Kind: k.String(), Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// version is the version of all encodings. It changes when any of them does.
const version = 1

// Every encoding begins with a header: the version, the kind, two bytes that
// are zero, a parameter of the kind, and the number of elements. This and all
// that follows is little-endian, as most machines have their vectors.
const (
	kindOffset  = 1
	zeroOffset  = 2
	paramOffset = 4
	countOffset = 8
	headerBytes = 16
)

func appendHeader(dst []byte, k kind, param uint32, n int) []byte {
	dst = append(dst, version, byte(k), 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, param)
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

// cutHeader checks the header of an encoding that is to be added to n elements
// and returns the parameter and what follows the header.
func cutHeader(encoded []byte, want kind, n int) (param uint32, body []byte, err error) {
	if len(encoded) < headerBytes {
		return 0, nil, want.malformed(len(encoded), "it ends in the header")
	}
	if encoded[0] != version {
		return 0, nil, want.malformed(0, "version %d, want %d", encoded[0], version)
	}
	if got := kind(encoded[kindOffset]); got != want {
		return 0, nil, want.malformed(kindOffset, "it is for %s", got)
	}
	if binary.LittleEndian.Uint16(encoded[zeroOffset:]) != 0 {
		return 0, nil, want.malformed(zeroOffset, "two bytes are not zero")
	}
	if count := binary.LittleEndian.Uint64(encoded[countOffset:]); count != uint64(n) {
		return 0, nil, want.malformed(countOffset, "a vector of %d elements, want %d", count, n)
	}
	return binary.LittleEndian.Uint32(encoded[paramOffset:]), encoded[headerBytes:], nil
}

// cutPlainHeader is cutHeader for kinds without a parameter.
func cutPlainHeader(encoded []byte, want kind, n int) (body []byte, err error) {
	param, body, err := cutHeader(encoded, want, n)
	if err == nil && param != 0 {
		return nil, want.malformed(paramOffset, "parameter %d, want 0", param)
	}
	return body, err
}

// checkBytes is the error of an encoding whose body is not of n bytes.
func (k kind) checkBytes(body []byte, n int) error {
	switch {
	case len(body) < n:
		return k.malformed(headerBytes+len(body), "it ends %d bytes early", n-len(body))
	case len(body) > n:
		return k.malformed(headerBytes+n, "%d bytes follow its end", len(body)-n)
	}
	return nil
}
