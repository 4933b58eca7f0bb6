package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// seeds.commits holds the number of the last acknowledged transaction, in one of two
// copies in turn, so that a torn write leaves the other copy intact. The copies are in
// different sectors.
const (
	counterMagic = "nexarcnt"
	copyStride   = 4096
	counterBytes = 2 * copyStride
	copyBytes    = 8 + 4 + 16 + 8 + 8 + 4 // magic, version, file, commit, digest, checksum
)

// A counterState is the content of seeds.commits.
type counterState struct {
	file [16]byte // identity.file
	seal          // of the last acknowledged transaction
	// torn: the other copy is invalid. Only a crash during its write explains that,
	// which starts when the transaction is on disk.
	torn bool
}

// A counter writes seeds.commits.
type counter struct {
	f    *os.File
	file [16]byte
	last seal
}

func encodeCopy(file [16]byte, s seal) []byte {
	b := append(make([]byte, 0, copyBytes), counterMagic...)
	b = binary.LittleEndian.AppendUint32(b, formatVersion)
	b = append(b, file[:]...)
	b = append(b, s.marshal()...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// decodeCopy returns only the version if it is unknown.
func decodeCopy(b []byte) (file [16]byte, s seal, version uint32, ok bool) {
	body, sum := b[:copyBytes-4], binary.LittleEndian.Uint32(b[copyBytes-4:])
	if !bytes.HasPrefix(b, []byte(counterMagic)) || crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) != sum {
		return file, s, 0, false
	}
	copy(file[:], body[12:])
	s, err := parseSeal(body[28:])
	return file, s, binary.LittleEndian.Uint32(body[8:]), err == nil
}

// encodeCounter encodes a file for a transaction. Its number is at least 1.
func encodeCounter(file [16]byte, s seal) []byte {
	b := make([]byte, counterBytes)
	copy(b[copyStride*((s.commit-1)%2):], encodeCopy(file, seal{s.commit - 1, 0}))
	copy(b[copyStride*(s.commit%2):], encodeCopy(file, s))
	return b
}

// readCounter reads seeds.commits. The error is that of os.Open, or reports a file that
// this package has not written.
func readCounter(path string) (c counterState, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, counterBytes+1))
	if err != nil {
		return c, fmt.Errorf("it cannot be read: %w", err)
	}
	if len(b) != counterBytes {
		return c, fmt.Errorf("its length is not the expected %d bytes", counterBytes)
	}
	return parseCounter(b)
}

func parseCounter(b []byte) (c counterState, err error) {
	valid := 0
	for i := range uint64(2) {
		file, s, version, ok := decodeCopy(b[i*copyStride:])
		switch {
		case !ok:
			continue
		case version != formatVersion:
			return c, formatError(version)
		case s.commit%2 != i:
			return c, fmt.Errorf("copy %d holds commit %d, which belongs into the other one", i, s.commit)
		case valid > 0 && (file != c.file || max(s.commit, c.commit)-min(s.commit, c.commit) != 1):
			return c, fmt.Errorf("its copies do not belong together: commits %d and %d", c.commit, s.commit)
		}
		if valid++; valid == 1 || s.commit > c.commit {
			c.file, c.seal = file, s
		}
	}
	if valid == 0 {
		return c, errors.New("neither of its two copies is valid")
	}
	c.torn = valid == 1
	return c, nil
}

// write records that a transaction is on disk, and syncs the file.
func (c *counter) write(s seal) error {
	if _, err := c.f.WriteAt(encodeCopy(c.file, s), copyStride*int64(s.commit%2)); err != nil {
		return err
	}
	if err := syncData(c.f); err != nil {
		return err
	}
	c.last = s
	return nil
}
