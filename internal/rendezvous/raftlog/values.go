package raftlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"slices"

	"google.golang.org/protobuf/proto"
)

// formatVersion is the version of seeds.db and seeds.commits. Version 1 had neither
// checksums nor a commit counter.
const formatVersion = 2

// The buckets of seeds.db, and the keys of the first.
const (
	stateBucket   = "state"
	entriesBucket = "entries" // by index, big-endian

	identityKey = "identity"
	hardKey     = "hard"
	snapshotKey = "snapshot"
	sealKey     = "seal"
)

// checksumBytes is the length of the CRC-32C before each value.
const checksumBytes = 4

// encodeValue prefixes a payload with a checksum of key and payload, so that a value is
// invalid under another key.
func encodeValue(key string, payload []byte) (value []byte, sum uint32) {
	sum = valueSum(key, payload)
	return append(binary.LittleEndian.AppendUint32(nil, sum), payload...), sum
}

// decodeValue checks a value and returns its payload, which aliases it.
func decodeValue(key string, value []byte) (payload []byte, sum uint32, err error) {
	if len(value) < checksumBytes {
		return nil, 0, fmt.Errorf("the value of %s has %d bytes, fewer than its checksum", describeKey(key), len(value))
	}
	sum, payload = binary.LittleEndian.Uint32(value), value[checksumBytes:]
	if got := valueSum(key, payload); got != sum {
		return nil, 0, fmt.Errorf("the checksum of %s is %08x, expected %08x", describeKey(key), got, sum)
	}
	return payload, sum, nil
}

func valueSum(key string, payload []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(key), table), table, payload)
}

func describeKey(key string) string {
	switch key {
	case identityKey, hardKey, snapshotKey, sealKey:
		return "the record " + key
	}
	if len(key) == 8 {
		return fmt.Sprintf("entry %d", binary.BigEndian.Uint64([]byte(key)))
	}
	return fmt.Sprintf("key %q", key)
}

// decodeMessage checks a value and parses its message.
func decodeMessage(key string, value []byte, m proto.Message) (sum uint32, err error) {
	payload, sum, err := decodeValue(key, value)
	if err != nil {
		return 0, err
	}
	if err := proto.Unmarshal(payload, m); err != nil {
		return 0, fmt.Errorf("%s is invalid: %w", describeKey(key), err)
	}
	return sum, nil
}

// indexKey returns the key of an entry.
func indexKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// An identity is the owner of a file. It is written once.
type identity struct {
	file   [16]byte // random, the same in seeds.db and seeds.commits
	member uint64   // this seed's ID in Raft
	seeds  []uint64 // all seeds
}

func (id *identity) marshal() []byte {
	b := binary.LittleEndian.AppendUint32(nil, formatVersion)
	b = append(b, id.file[:]...)
	b = binary.LittleEndian.AppendUint64(b, id.member)
	for _, s := range id.seeds {
		b = binary.LittleEndian.AppendUint64(b, s)
	}
	return b
}

// parseIdentity returns only the version if it is unknown.
func parseIdentity(b []byte) (id identity, version uint32, err error) {
	if len(b) < 4 {
		return id, 0, fmt.Errorf("the record %s has %d bytes, expected at least 4", identityKey, len(b))
	}
	if version = binary.LittleEndian.Uint32(b); version != formatVersion {
		return id, version, nil
	}
	if b = b[4:]; len(b) < 24 || len(b)%8 != 0 {
		return id, version, fmt.Errorf("the record %s has %d bytes, expected 28 and 8 for each seed", identityKey, len(b)+4)
	}
	copy(id.file[:], b)
	id.member = binary.LittleEndian.Uint64(b[16:])
	for b = b[24:]; len(b) > 0; b = b[8:] {
		id.seeds = append(id.seeds, binary.LittleEndian.Uint64(b))
	}
	return id, version, nil
}

// A seal is the last record of each transaction: its number, and a digest of all
// records of the file after it.
type seal struct{ commit, digest uint64 }

func (s seal) marshal() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, s.commit), s.digest)
}

func parseSeal(b []byte) (s seal, err error) {
	if len(b) != 16 {
		return s, fmt.Errorf("the record %s has %d bytes, expected 16", sealKey, len(b))
	}
	return seal{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, nil
}

// sums holds the checksums of all records of a file. Their digest identifies its state.
type sums struct {
	identity, hard, snapshot uint32
	first                    uint64 // index of the first entry
	entries                  []uint32
}

func (s *sums) clone() sums {
	c := *s
	c.entries = slices.Clone(s.entries)
	return c
}

func (s *sums) digest() uint64 {
	b := make([]byte, 0, 20+4*len(s.entries))
	for _, sum := range []uint32{s.identity, s.hard, s.snapshot} {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	if len(s.entries) > 0 {
		b = binary.LittleEndian.AppendUint64(b, s.first)
	}
	for _, sum := range s.entries {
		b = binary.LittleEndian.AppendUint32(b, sum)
	}
	return crc64.Checksum(b, crc64.MakeTable(crc64.ECMA))
}

// dropFrom removes the entries from an index on, and dropUpTo those up to an index.
func (s *sums) dropFrom(index uint64) {
	s.entries = s.entries[:min(uint64(len(s.entries)), max(index, s.first)-s.first)]
}

func (s *sums) dropUpTo(index uint64) {
	if index < s.first {
		return
	}
	n := min(uint64(len(s.entries)), index-s.first+1)
	s.entries = s.entries[n:]
	s.first += n
}

// add appends the checksum of the next entry.
func (s *sums) add(index uint64, sum uint32) {
	if len(s.entries) == 0 {
		s.first = index
	}
	s.entries = append(s.entries, sum)
}
