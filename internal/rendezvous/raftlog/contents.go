package raftlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// seeds.db has a magic number, the version of its format, a raftpb.Message with the contents,
// and the SHA-256 of all that. Versions 1 and 2 were files of bbolt.
const (
	magic         = "nexarlog"
	formatVersion = 3
	headerBytes   = len(magic) + 4

	bboltMagic   = 0xED0CDAED // in the byte order of the machine
	bboltMagicAt = 16
)

// A FileError reports that the state of a seed is damaged, missing or foreign.
type FileError struct {
	Path    string
	Problem string
	several bool // whether other seeds hold the state
}

func (e *FileError) Error() string {
	remedy := "no other seed holds its state: start a new world in an empty directory (--state-dir, SeedConfig.StateDir)"
	if e.several {
		remedy = "start this seed with --forget-state (SeedConfig.ForgetState): it learns the state from the other seeds, and votes again when it has caught up"
	}
	return fmt.Sprintf("%s cannot be used: %s. If it was moved or replaced, put back the file that this seed has left; otherwise %s", e.Path, e.Problem, remedy)
}

// Unwrap makes every FileError an ErrDamaged.
func (e *FileError) Unwrap() error { return ErrDamaged }

// errVersion reports an undamaged file of another version of nexar.
var errVersion = errors.New("another version of nexar has written it")

func versionError(version any) error {
	return fmt.Errorf("%w: its format has version %v, expected %d. End its world with that version of nexar, or start a new world in an empty directory (--state-dir, SeedConfig.StateDir)", errVersion, version, formatVersion)
}

// contents are the contents of a state directory.
type contents struct {
	member   uint64 // this seed's ID in Raft
	seeds    []byte // all seeds, by encodeSeeds
	hard     *raftpb.HardState
	snapshot *raftpb.Snapshot
	entries  []*raftpb.Entry // after the snapshot
}

// newContents returns the first contents of a log, which differ between seeds only in the member.
func newContents(member uint64, seeds []uint64) *contents {
	return &contents{
		member: member, seeds: encodeSeeds(seeds),
		hard: &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)},
		snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: &raftpb.ConfState{Voters: seeds}, Index: proto.Uint64(1), Term: proto.Uint64(1),
		}},
	}
}

func encodeSeeds(seeds []uint64) (b []byte) {
	for _, s := range slices.Sorted(slices.Values(seeds)) {
		b = binary.LittleEndian.AppendUint64(b, s)
	}
	return b
}

func (c *contents) marshal() ([]byte, error) {
	b := binary.LittleEndian.AppendUint32([]byte(magic), formatVersion)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, &raftpb.Message{
		Type: raftpb.MsgStorageAppend.Enum(), From: &c.member, Context: c.seeds,
		Term: c.hard.Term, Vote: c.hard.Vote, Commit: c.hard.Commit, Snapshot: c.snapshot, Entries: c.entries,
	})
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), err
}

func parseContents(b []byte) (*contents, error) {
	switch {
	case len(b) == 0:
		return nil, errors.New("it is empty, which nexar never leaves behind")
	case len(b) >= bboltMagicAt+4 && binary.NativeEndian.Uint32(b[bboltMagicAt:]) == bboltMagic:
		return nil, versionError("1 or 2")
	case !bytes.HasPrefix(b, []byte(magic)):
		return nil, errors.New("it is not a file that nexar wrote")
	case len(b) < headerBytes+sha256.Size:
		return nil, fmt.Errorf("it is truncated: %d bytes long, expected at least %d", len(b), headerBytes+sha256.Size)
	}
	b, want := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(b); !bytes.Equal(got[:], want) {
		return nil, fmt.Errorf("its checksum is %x…, and that of its %d bytes is %x…: it is damaged or truncated", want[:4], len(b), got[:4])
	}
	if version := binary.LittleEndian.Uint32(b[len(magic):]); version != formatVersion {
		return nil, versionError(version)
	}
	m := new(raftpb.Message)
	if err := proto.Unmarshal(b[headerBytes:], m); err != nil {
		return nil, fmt.Errorf("its contents are invalid: %w", err)
	}
	return &contents{
		member: m.GetFrom(), seeds: m.GetContext(),
		hard:     &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit},
		snapshot: m.GetSnapshot(), entries: m.GetEntries(),
	}, nil
}
