package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/nexar-go/nexar/device"
	"pgregory.net/rapid"
)

func TestNoneIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := vectors(anyFloat()).Draw(t, "src")
		encoded := encode(t, None{}, src)
		if got := len(encoded); got != (None{}).MaxBytes(len(src)) {
			t.Fatalf("%d bytes, want %d as MaxBytes says", got, None{}.MaxBytes(len(src)))
		}
		var want []byte
		for _, b := range bitsOf(src) {
			want = binary.LittleEndian.AppendUint32(want, b)
		}
		if !bytes.Equal(encoded[headerBytes:], want) {
			t.Fatalf("elements are encoded as %x, want %x", encoded[headerBytes:], want)
		}
		for i, v := range decode(t, None{}, encoded, len(src)) {
			if isFinite(src[i]) && v != src[i] || magnitude(src[i]) == infinity32 && v != src[i] || src[i] != src[i] && v == v {
				t.Fatalf("element %d, %v, is decoded as %v", i, src[i], v)
			}
		}
	})
}

// TestNoneTyped: elements of all types are decoded bit for bit, and invalid encodings are
// errors that leave dst unchanged.
func TestNoneTyped(t *testing.T) {
	src := []byte("0123456789abcdef0123456789ABCDEF")
	for typ := device.Int8; typ.Size() > 0; typ++ {
		encoded, err := None{}.AppendTyped([]byte("x"), typ, src)
		if err != nil || len(encoded) != 1+(None{}).MaxTypedBytes(typ, len(src)/typ.Size()) {
			t.Fatalf("%v: %d bytes, %v", typ, len(encoded), err)
		}
		encoded = encoded[1:]
		got := make([]byte, len(src))
		if err := (None{}).DecodeTyped(got, typ, encoded); err != nil || !bytes.Equal(got, src) {
			t.Errorf("%v: decoded %q, %v", typ, got, err)
		}
		clear(got)
		for _, bad := range [][]byte{nil, encoded[:len(encoded)-1], append(bytes.Clone(encoded), 0), encoded[:5]} {
			if err := (None{}).DecodeTyped(got, typ, bad); !errors.Is(err, ErrFormat) {
				t.Errorf("%v: decoding %x: error %v, want ErrFormat", typ, bad, err)
			}
		}
		other := typ%12 + 1
		if err := (None{}).DecodeTyped(got[:len(src)/typ.Size()*other.Size()%33], other, encoded); !errors.Is(err, ErrFormat) {
			t.Errorf("decoding %v as %v: error %v, want ErrFormat", typ, other, err)
		}
		if !bytes.Equal(got, make([]byte, len(src))) {
			t.Errorf("%v: an invalid encoding changed dst", typ)
		}
	}
}
