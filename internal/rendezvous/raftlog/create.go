package raftlog

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

// firstCommit is the number of the first transaction of a log. With ForgetState, the
// first is returnedCommit, so that a crash during the creation of the files is not
// mistaken for the first start of a seed.
const (
	firstCommit    = 1
	returnedCommit = 2
)

// createState creates the files of a log, and replaces existing ones. Each is complete
// and on disk before it gets its name. The counter is created first: if a counter above
// firstCommit has no matching database, only ForgetState creates another log.
func createState(dir string, cfg *consensus.Config) error {
	id := identity{member: cfg.Self, seeds: cfg.Seeds}
	commit := uint64(firstCommit)
	rand.Read(id.file[:])
	if cfg.ForgetState {
		id.member, commit = newMember(cfg.Self), returnedCommit
	}
	path, counterPath := filepath.Join(dir, databaseFile), filepath.Join(dir, counterFile)
	s, err := createDatabase(path+newSuffix, &id, commit)
	if err != nil {
		return err
	}
	if b, err := os.ReadFile(counterPath); err == nil && cfg.ForgetState {
		_ = os.WriteFile(counterPath+setAsideSuffix, b, 0o600) // best-effort copy for the operator
	}
	if err := createFile(counterPath+newSuffix, encodeCounter(id.file, s)); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(counterPath+newSuffix, counterPath), syncDir(dir)); err != nil {
		return err
	}
	if cfg.ForgetState {
		if err := os.Rename(path, path+setAsideSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	// The names of the files must be durable, too.
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(filepath.Clean(dir))))
}

// createDatabase creates a database with the first state of a log, which differs
// between seeds only in the identity.
func createDatabase(path string, id *identity, commit uint64) (s seal, err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	var file *os.File
	db, err := openBolt(path, os.O_CREATE|os.O_EXCL, &file)
	if err != nil {
		return s, err
	}
	err = db.Update(func(tx *bolt.Tx) (err error) {
		t := new(transaction)
		if t.state, err = tx.CreateBucket([]byte(stateBucket)); err != nil {
			return err
		}
		if t.entries, err = tx.CreateBucket([]byte(entriesBucket)); err != nil {
			return err
		}
		value, sum := encodeValue(identityKey, id.marshal())
		t.sums.identity = sum
		snapshot := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: &raftpb.ConfState{Voters: id.seeds}, Index: proto.Uint64(1), Term: proto.Uint64(1),
		}}
		hard := &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)}
		if err := errors.Join(t.state.Put([]byte(identityKey), value), t.putSnapshot(snapshot), t.putHard(hard)); err != nil {
			return err
		}
		s = seal{commit, t.sums.digest()}
		return t.seal(s)
	})
	return s, errors.Join(err, db.Close())
}

// createFile creates a file and syncs it.
func createFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
