// Package wire encodes and decodes the messages of the protocol: frames between
// nodes, remote calls, and the joining messages between nodes and seeds.
// docs/wire.md describes them byte by byte.
//
// Integers are big-endian. A decoder checks each length before it allocates, never
// panics, and accepts exactly the bytes that an encoder writes.
//
// Frames on the path of payloads and messages of remote calls have hand-written encoders and
// decoders. The other frames and the joining messages are structs with their fields in wire
// order, which a codec encodes and decodes by their types and tags.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nexar-go/nexar/internal/membership"
)

// Version is the version of the protocol. Both sides of a connection must have the same.
const Version = 14

// Limits of single fields, in bytes, for encoders and decoders.
const (
	proofBytes          = 32
	textBytesMax        = 2048
	nameBytesMax        = 255
	addrBytesMax        = 300 // a DNS name of 253 bytes, a colon and a port
	addrsMax            = 16
	endpointsMax        = 16
	transportBytesMax   = 32
	certificateBytesMax = 8192
	signatureBytesMax   = 128
)

var (
	errShort    = errors.New("wire: truncated")
	errTrailing = errors.New("wire: trailing bytes")
	errPadding  = errors.New("wire: padding is not zero")
	errTooLong  = errors.New("wire: field too long")
	errValue    = errors.New("wire: field has a forbidden value")
	errNotText  = errors.New("wire: text is not printable UTF-8")
)

// A decoder takes the fields of a message from its front. After the first
// error all fields are zero, so a caller checks the error once, at the end.
type decoder struct {
	b   []byte
	err error
}

// fail keeps the first error.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// take returns the next n bytes, or fails and returns nil.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || len(d.b) < n {
		d.fail(errShort)
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *decoder) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if p := d.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// length takes the length of a payload or text.
func (d *decoder) length(limit uint32) int {
	n := d.u32()
	if n > limit {
		d.fail(errTooLong)
	}
	return int(n)
}

// zeros takes n bytes that must be 0.
func (d *decoder) zeros(n int) {
	for _, b := range d.take(n) {
		if b != 0 {
			d.fail(errPadding)
		}
	}
}

// finish returns the first error, or an error if bytes are left.
func (d *decoder) finish() error {
	if len(d.b) > 0 {
		d.fail(errTrailing)
	}
	return d.err
}

// A codec encodes fields to the end of decoder.b, or decodes them from its
// front. After the first error the fields have no meaning.
type codec struct {
	decoder
	encoding bool
}

// encoder returns a codec that encodes to the end of b.
func encoder(b []byte) codec { return codec{encoding: true, decoder: decoder{b: b}} }

// fields encodes or decodes all fields of a struct, in their order.
func (c *codec) fields(s reflect.Value) {
	for i := range s.NumField() {
		c.field(s.Field(i).Addr().Interface(), s.Type().Field(i).Tag.Get("wire"))
	}
}

// field encodes or decodes one field. The tag names the form of texts and byte strings.
func (c *codec) field(v any, tag string) {
	switch v := v.(type) {
	case *bool:
		c.flag(v)
	case *uint8:
		c.u8(v)
	case *uint32:
		c.u32(v)
	case *uint64:
		c.u64(v)
	case *uint16:
		if c.u16(v); tag == "version" && !c.encoding && *v != Version {
			c.fail(&VersionError{Theirs: *v, Ours: Version})
		}
	case *RefusalCode:
		c.u16((*uint16)(v))
	case *Lane:
		c.enum((*uint8)(v), 0, uint8(Lanes-1))
	case *Loss:
		c.enum((*uint8)(v), 0, uint8(lossEnd-1))
	case *Detail:
		c.enum((*uint8)(v), 0, uint8(History))
	case *Cause:
		c.enum((*uint8)(v), 1, uint8(causeEnd-1))
	case *int:
		limit := uint32(TextMax)
		switch tag {
		case "waits":
			limit = WaitsMax
		case "view":
			limit = ViewMessageMax
		}
		c.length(v, limit)
	case *int32:
		c.rank(v)
	case *[16]byte:
		c.id(v)
	case *membership.Hash:
		c.hash(v)
	case *[]uint32:
		c.ranks(v)
	case *Call:
		c.call(v)
	case *[]string:
		c.addrs(v)
	case *[]membership.Endpoint:
		c.endpoints(v)
	case *[]membership.Node:
		c.nodes(v)
	case *[]membership.Candidate:
		c.candidates(v)
	case *[]byte:
		if c.bytes(v, bytesMax(tag)); tag == "proof" {
			c.checkProof(v)
		}
	case *string:
		if tag == "text" && c.encoding {
			*v = cleanText(*v)
		}
		c.name(v, bytesMax(tag))
	default:
		panic(fmt.Sprintf("wire: field of type %T", v))
	}
}

// bytesMax returns the maximum length of a field with a tag.
func bytesMax(tag string) int {
	switch tag {
	case "proof":
		return proofBytes
	case "certificate":
		return certificateBytesMax
	case "signature":
		return signatureBytesMax
	case "trace":
		return TraceBytesMax
	case "log":
		return LogBytesMax
	case "name":
		return nameBytesMax
	case "addr":
		return addrBytesMax
	case "text":
		return textBytesMax
	}
	panic(fmt.Sprintf("wire: field with tag %q", tag))
}

func (c *codec) u8(v *uint8) {
	if c.encoding {
		c.b = append(c.b, *v)
	} else {
		*v = c.decoder.u8()
	}
}

// enum encodes or decodes a byte from lo to hi.
func (c *codec) enum(v *uint8, lo, hi uint8) {
	if c.u8(v); !c.encoding && (*v < lo || *v > hi) {
		c.fail(errValue)
	}
}

func (c *codec) u16(v *uint16) {
	if c.encoding {
		c.b = binary.BigEndian.AppendUint16(c.b, *v)
	} else {
		*v = c.decoder.u16()
	}
}

func (c *codec) u32(v *uint32) {
	if c.encoding {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	} else {
		*v = c.decoder.u32()
	}
}

func (c *codec) u64(v *uint64) {
	if c.encoding {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	} else {
		*v = c.decoder.u64()
	}
}

func (c *codec) flag(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.enum(&b, 0, 1)
	*v = b == 1
}

func (c *codec) id(v *[16]byte) {
	if c.encoding {
		c.b = append(c.b, v[:]...)
	} else {
		copy(v[:], c.take(len(v)))
	}
}

func (c *codec) hash(v *membership.Hash) {
	if c.encoding {
		c.b = append(c.b, v[:]...)
	} else {
		copy(v[:], c.take(len(v)))
	}
}

// ranks encodes or decodes a list of ranks.
func (c *codec) ranks(v *[]uint32) { longList(c, v, 4, c.u32) }

// longList encodes or decodes a list after its length (32 bits).
func longList[E any](c *codec, v *[]E, bytesMin int, element func(*E)) {
	n := uint32(len(*v))
	c.u32(&n)
	elements(c, v, uint64(n), bytesMin, element)
}

// elements encodes or decodes the n elements of a list, each of at least bytesMin bytes. A decoder checks n
// against the remaining bytes before it allocates the list.
func elements[E any](c *codec, v *[]E, n uint64, bytesMin int, element func(*E)) {
	if !c.encoding {
		if n*uint64(bytesMin) > uint64(len(c.b)) {
			c.fail(errShort)
		}
		if c.err != nil || n == 0 {
			return
		}
		*v = make([]E, n)
	}
	for i := range *v {
		element(&(*v)[i])
	}
}

// length encodes or decodes the length (32 bits) of a payload or text.
func (c *codec) length(v *int, limit uint32) {
	u := uint32(*v)
	if c.u32(&u); u > limit {
		c.fail(errTooLong)
	}
	*v = int(u)
}

func (c *codec) call(v *Call) {
	if c.encoding {
		c.b = v.append(c.b)
	} else {
		*v = c.decoder.call()
	}
}

// rank encodes or decodes a rank or AnyRank.
func (c *codec) rank(v *int32) {
	u := uint32(*v)
	c.u32(&u)
	if *v = int32(u); *v < AnyRank {
		c.fail(errValue)
	}
}

// bytes encodes or decodes a field of at most limit bytes after its length (16 bits). A decoded
// one aliases the message.
func (c *codec) bytes(v *[]byte, limit int) {
	n := uint16(len(*v))
	if c.encoding && len(*v) > limit {
		c.fail(fmt.Errorf("%w: %d bytes, at most %d", errTooLong, len(*v), limit))
		return
	}
	if c.u16(&n); c.encoding {
		c.b = append(c.b, *v...)
		return
	}
	if int(n) > limit {
		c.fail(errTooLong)
	}
	*v = c.take(int(n))
}

// name encodes or decodes a printable text of at most limit bytes. Longer ones are refused.
func (c *codec) name(v *string, limit int) {
	p := []byte(*v)
	if c.bytes(&p, limit); !c.encoding {
		*v = string(p)
	}
	if !printable(*v) {
		c.fail(fmt.Errorf("%w: %q", errNotText, *v))
	}
}

// cleanText replaces non-printable characters by spaces, and truncates the result to
// textBytesMax bytes.
func cleanText(text string) string {
	text = strings.Map(func(r rune) rune {
		if !isPrint(r) {
			return ' '
		}
		return r
	}, text)
	for len(text) > textBytesMax {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}

// checkProof accepts a proof of the token, or an empty one.
func (c *codec) checkProof(v *[]byte) {
	if len(*v) == 0 {
		*v = nil
	} else if len(*v) != proofBytes {
		c.fail(errValue)
	}
}

// list encodes or decodes a list of at most limit elements after their number (8 bits).
func list[E any](c *codec, v *[]E, limit int, element func(*E)) {
	n := uint8(min(len(*v), limit+1))
	if c.u8(&n); int(n) > limit {
		c.fail(fmt.Errorf("%w: more than %d elements", errTooLong, limit))
		return
	}
	elements(c, v, uint64(n), 1, element)
}

func (c *codec) addrs(v *[]string) {
	list(c, v, addrsMax, func(addr *string) { c.name(addr, addrBytesMax) })
}

func (c *codec) endpoints(v *[]membership.Endpoint) {
	list(c, v, endpointsMax, func(e *membership.Endpoint) {
		c.name(&e.Transport, transportBytesMax)
		c.name(&e.Addr, addrBytesMax)
	})
}

func (c *codec) candidates(v *[]membership.Candidate) {
	list(c, v, membership.CandidatesMax, func(e *membership.Candidate) {
		c.id((*[16]byte)(&e.ID))
		c.rank(&e.Rank)
		c.name(&e.Name, nameBytesMax)
		c.name(&e.Addr, addrBytesMax)
	})
}

// printable reports whether a terminal or log shows all characters of s unchanged.
func printable(s string) bool {
	if isASCII(s) {
		return true
	}
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !isPrint(r) }) < 0
}

// isASCII reports whether all bytes of s are printable ASCII characters, as in most texts.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func isPrint(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
