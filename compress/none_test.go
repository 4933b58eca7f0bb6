package compress

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

func TestNoneIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := vectors(anyFloat()).Draw(t, "src")
		encoded := encode(t, None{}, src)
		if got := len(encoded); got != (None{}).MaxBytes(len(src)) {
			t.Fatalf("%d bytes, want as many as MaxBytes says, %d", got, None{}.MaxBytes(len(src)))
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
				t.Fatalf("element %d of %v comes back as %v", i, src[i], v)
			}
		}
	})
}
