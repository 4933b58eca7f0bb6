package quic

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// appendRefusal appends an Initial packet with a CONNECTION_CLOSE frame that refuses a
// connection (RFC 9000, section 5.2.2). It appends nothing for clients of versions other
// than QUIC 1.
func appendRefusal(b []byte, client *initialHeader) ([]byte, error) {
	if client.version != versionQUIC1 {
		return b, nil
	}
	const (
		initialOfServer   = 0xc3 // with a packet number of four bytes
		connectionClose   = 0x1c
		connectionRefused = 0x02
		numberBytes       = 4
		tagBytes          = 16
	)
	frame := [...]byte{connectionClose, connectionRefused, 0, 0} // no frame type, no reason
	start := len(b)
	b = append(b, initialOfServer)
	b = binary.BigEndian.AppendUint32(b, client.version)
	b = client.srcID.append(b)
	b = client.destID.append(b)
	b = append(b, 0, numberBytes+byte(len(frame))+tagBytes) // no token; the length
	number := len(b)
	b = append(b, make([]byte, numberBytes)...)

	keys, err := serverInitialKeys(client.destID.slice())
	if err != nil {
		return b[:start], err
	}
	// The nonce is the IV, since the packet number is zero.
	b = keys.aead.Seal(b, keys.iv, frame[:], b[start:])

	// Header protection (RFC 9001, section 5.4).
	var mask [aes.BlockSize]byte
	keys.header.Encrypt(mask[:], b[number+numberBytes:][:aes.BlockSize])
	b[start] ^= mask[0] & 0x0f
	for i := range numberBytes {
		b[number+i] ^= mask[1+i]
	}
	return b, nil
}

// initialKeys protect the Initial packets of one side.
type initialKeys struct {
	aead   cipher.AEAD
	iv     []byte
	header cipher.Block
}

// serverInitialKeys derives the keys of a server from the destination connection ID of
// the client (RFC 9001, section 5.2).
func serverInitialKeys(destID []byte) (keys initialKeys, err error) {
	salt := [...]byte{
		0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
		0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
	}
	initial, err := hkdf.Extract(sha256.New, destID, salt[:])
	if err != nil {
		return keys, err
	}
	expand := func(secret []byte, label string, n int) (key []byte) {
		if err == nil {
			key, err = hkdf.Expand(sha256.New, secret, tlsLabel(label, n), n)
		}
		return key
	}
	secret := expand(initial, "server in", sha256.Size)
	key, header := expand(secret, "quic key", 16), expand(secret, "quic hp", 16)
	keys.iv = expand(secret, "quic iv", 12)
	if err != nil {
		return keys, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return keys, err
	}
	if keys.header, err = aes.NewCipher(header); err != nil {
		return keys, err
	}
	keys.aead, err = cipher.NewGCM(block)
	return keys, err
}

// tlsLabel returns the HkdfLabel of TLS 1.3 for n bytes, without a context (RFC 8446,
// section 7.1).
func tlsLabel(label string, n int) string {
	label = "tls13 " + label
	b := binary.BigEndian.AppendUint16(nil, uint16(n))
	b = append(b, byte(len(label)))
	b = append(b, label...)
	return string(append(b, 0))
}
