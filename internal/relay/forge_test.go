package relay

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
)

// An initial has the public fields of an Initial packet.
type initial struct{ destination, source []byte } // connection IDs

// parseInitial parses an Initial packet of version 1 (RFC 9000, section 17.2.2).
func parseInitial(p []byte) (i initial, ok bool) {
	if len(p) < 7 || p[0]&0xf0 != 0xc0 || binary.BigEndian.Uint32(p[1:]) != 1 {
		return i, false
	}
	rest := p[5:]
	for _, id := range []*[]byte{&i.destination, &i.source} {
		if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
			return i, false
		}
		*id = slices.Clone(rest[1 : 1+rest[0]])
		rest = rest[1+rest[0]:]
	}
	return i, len(i.destination) >= 8 // The ID that the client has chosen, from which the keys are derived.
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// expand is HKDF-Expand-Label (RFC 8446, section 7.1).
func expand(secret []byte, label string, size int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(size))
	info = append(info, byte(len("tls13 ")+len(label)))
	return must(hkdf.Expand(sha256.New, secret, string(info)+"tls13 "+label+"\x00", size))
}

// seal returns an Initial packet with frames, for which it needs no secret (RFC 9001, section 5). side is "client in" or "server in".
func (i initial) seal(side string, destination, source, frames []byte) []byte {
	salt := must(hex.DecodeString("38762cf7f55934b34d179ae6a4c80cadccbb7f0a"))
	secret := expand(must(hkdf.Extract(sha256.New, i.destination, salt)), side, 32)
	aead := must(cipher.NewGCM(must(aes.NewCipher(expand(secret, "quic key", 16)))))
	protect := must(aes.NewCipher(expand(secret, "quic hp", 16)))
	const number = 1000
	header := []byte{0xc3, 0, 0, 0, 1}
	header = append(append(header, byte(len(destination))), destination...)
	header = append(append(header, byte(len(source))), source...)
	header = append(header, 0) // no token
	payload := make([]byte, max(len(frames), 1200-len(header)-2-4-aead.Overhead()))
	copy(payload, frames)
	header = binary.BigEndian.AppendUint16(header, 0x4000|uint16(4+len(payload)+aead.Overhead()))
	at := len(header)
	header = binary.BigEndian.AppendUint32(header, number)
	nonce := expand(secret, "quic iv", 12)
	for k := range 4 {
		nonce[8+k] ^= header[at+k]
	}
	p := aead.Seal(header, nonce, payload, header)
	mask := make([]byte, 16)
	protect.Encrypt(mask, p[at+4:at+20])
	p[0] ^= mask[0] & 0x0f
	for k := range 4 {
		p[at+k] ^= mask[1+k]
	}
	return p
}

// closeFrame is CONNECTION_CLOSE with an error of the transport.
func closeFrame(code byte) []byte {
	return append([]byte{0x1c, code, 0, 6}, "forged"...)
}

// versions returns a Version Negotiation packet, which answers an Initial.
func (i initial) versions() []byte {
	p := []byte{0x80, 0, 0, 0, 0}
	p = append(append(p, byte(len(i.source))), i.source...)
	p = append(append(p, byte(len(i.destination))), i.destination...)
	return append(p, 0x1a, 0x2a, 0x3a, 0x4a)
}

// retry returns a Retry packet, which answers an Initial (RFC 9001, section 5.8).
func (i initial) retry() []byte {
	p := []byte{0xf0, 0, 0, 0, 1}
	p = append(append(p, byte(len(i.source))), i.source...)
	p = append(append(p, 8), "forgedID"...)
	p = append(p, "forged token, which the server does not know"...)
	aead := must(cipher.NewGCM(must(aes.NewCipher(must(hex.DecodeString("be0c690b9f66575a1d766b54e368c84e"))))))
	pseudo := append(append([]byte{byte(len(i.destination))}, i.destination...), p...)
	return aead.Seal(p, must(hex.DecodeString("461599d35d632bf2239825bb")), nil, pseudo)
}
