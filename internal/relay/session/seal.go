package session

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"

	"github.com/nexar-go/nexar/internal/relay/forward"
)

const (
	secretSize = 32
	keySize    = 16 // AES-128-GCM
	tagSize    = 16

	// epochFrames is the number of frames that are sealed with one key: fewer than 2^24.5, the
	// limit of TLS 1.3 for AES-GCM.
	epochFrames = 1 << 24
)

// A key seals or opens the frames of one kind in one direction. The sequence number of a frame is the
// nonce. After epochFrames frames the next key is derived from the secret.
type key struct {
	secret []byte // of epoch
	epoch  uint64
	aead   cipher.AEAD
	before cipher.AEAD // of the epoch before, for opening frames out of order
}

func newKey(secret []byte) *key {
	return &key{secret: secret, aead: derive(secret)}
}

// derive returns the cipher of a secret.
func derive(secret []byte) cipher.AEAD {
	block, err := aes.NewCipher(expand(secret, "nexar relay key", keySize))
	if err != nil {
		panic(err) // The size of the key is constant.
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func expand(secret []byte, label string, size int) []byte {
	b, err := hkdf.Expand(sha256.New, secret, label, size)
	if err != nil {
		panic(err) // It fails for sizes above 255 hashes only.
	}
	return b
}

func (k *key) advanced() *key {
	next := newKey(expand(k.secret, "nexar relay next", secretSize))
	next.epoch, next.before = k.epoch+1, k.aead
	return next
}

// nonce and additional return the parameters of AEAD for a frame. All its fields are
// authenticated except for Hops, which relays change, and Attempt, which differs between the
// transmissions of a frame.
func nonce(f *forward.Frame) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), f.Seq)
}

func additional(f *forward.Frame) []byte {
	fixed := forward.Frame{Kind: f.Kind, Source: f.Source, Destination: f.Destination, Session: f.Session, Seq: f.Seq}
	return fixed.AppendHeader(make([]byte, 0, forward.HeaderSize))
}

// seal encrypts plain in place and makes it the payload of f. plain has room for the tag.
func (k *key) seal(f *forward.Frame, plain []byte) {
	if f.Seq/epochFrames > k.epoch {
		*k = *k.advanced()
	}
	f.Payload = k.aead.Seal(plain[:0], nonce(f), plain, additional(f))
}

// open decrypts the payload of f in place. It returns false if f is not authentic.
func (k *key) open(f *forward.Frame) (plain []byte, ok bool) {
	use, next := k.aead, (*key)(nil)
	switch epoch := f.Seq / epochFrames; {
	case epoch == k.epoch:
	case epoch+1 == k.epoch:
		use = k.before
	case epoch == k.epoch+1:
		next = k.advanced()
		use = next.aead
	default:
		return nil, false
	}
	if len(f.Payload) < tagSize {
		return nil, false
	}
	plain, err := use.Open(f.Payload[:0], nonce(f), f.Payload, additional(f))
	if err != nil {
		return nil, false
	}
	if next != nil {
		*k = *next
	}
	return plain, true
}

// keys are the keys of one side of a session.
type keys struct {
	sealData, sealAck, openData, openAck *key
}

// exportKeys derives the keys of a session from its TLS session and its two ends.
func (s *Session) exportKeys(state *tls.ConnectionState) (k keys, err error) {
	client, server := s.cfg.Self, s.cfg.Peer
	if !s.client {
		client, server = server, client
	}
	context := binary.BigEndian.AppendUint64(append(client[:], server[:]...), s.cfg.ID)
	b, err := state.ExportKeyingMaterial("EXPORTER-nexar-relay", context, 4*secretSize)
	if err != nil {
		return k, fmt.Errorf("relay: export keys of the TLS session: %w", err)
	}
	part := func(i int) *key { return newKey(b[i*secretSize : (i+1)*secretSize : (i+1)*secretSize]) }
	k = keys{sealData: part(0), sealAck: part(1), openData: part(2), openAck: part(3)}
	if !s.client {
		k.sealData, k.openData = k.openData, k.sealData
		k.sealAck, k.openAck = k.openAck, k.sealAck
	}
	return k, nil
}
