package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	file = "seeds.db"
	// lockTimeout is how long the file may be in use by another process.
	lockTimeout = time.Second
)

// The buckets of the file, and the keys of the first.
const (
	stateBucket   = "state"
	entriesBucket = "entries" // by index, big-endian, in order

	selfKey     = "self"
	hardKey     = "hard"
	snapshotKey = "snapshot"
)

// A disk is a log as it is kept: what a write has returned for survives the end of
// the process and of the machine.
type disk struct{ db *bolt.DB }

// openDisk opens the log in a directory, and reads it. If there is none, it makes one
// in which the seeds are the voters and nothing has happened.
func openDisk(dir string, self uint64, seeds []uint64) (*disk, *raft.MemoryStorage, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("directory of the log of the seeds: %w", err)
	}
	path := filepath.Join(dir, file)
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: lockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, nil, fmt.Errorf("%s is in use by another seed", path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("log of the seeds in %s: %w", path, err)
	}
	// That there is a file must survive as well as what is in it.
	if err := errors.Join(syncDir(dir), syncDir(filepath.Dir(filepath.Clean(dir)))); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("directory of the log of the seeds: %w", err), db.Close())
	}
	d := &disk{db}
	memory, err := d.load(self, seeds)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("log of the seeds in %s: %w", path, err), db.Close())
	}
	return d, memory, nil
}

// syncDir has the system write a directory to the disk.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil // There it cannot be asked for.
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (d *disk) close() error { return d.db.Close() }

// load reads the log, or makes it.
func (d *disk) load(self uint64, seeds []uint64) (memory *raft.MemoryStorage, err error) {
	memory = raft.NewMemoryStorage()
	err = d.db.Update(func(tx *bolt.Tx) error {
		state, err := tx.CreateBucketIfNotExists([]byte(stateBucket))
		if err != nil {
			return err
		}
		entries, err := tx.CreateBucketIfNotExists([]byte(entriesBucket))
		if err != nil {
			return err
		}
		if state.Get([]byte(selfKey)) == nil {
			if err := found(state, self, seeds); err != nil {
				return err
			}
		}
		return read(state, entries, memory, self, seeds)
	})
	return memory, err
}

// found writes the beginning of a log, which is the same on all seeds.
func found(state *bolt.Bucket, self uint64, seeds []uint64) error {
	snapshot := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: &raftpb.ConfState{Voters: seeds}, Index: proto.Uint64(1), Term: proto.Uint64(1),
	}}
	hard := &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)}
	return errors.Join(
		put(state, snapshotKey, snapshot), put(state, hardKey, hard),
		state.Put([]byte(selfKey), key(self)),
	)
}

// read fills memory, and makes sure that this is the log of this seed.
func read(state, entries *bolt.Bucket, memory *raft.MemoryStorage, self uint64, seeds []uint64) error {
	var snapshot raftpb.Snapshot
	var hard raftpb.HardState
	if err := errors.Join(get(state, snapshotKey, &snapshot), get(state, hardKey, &hard)); err != nil {
		return err
	}
	voters := slices.Sorted(slices.Values(snapshot.GetMetadata().GetConfState().GetVoters()))
	if b := state.Get([]byte(selfKey)); len(b) != 8 || binary.BigEndian.Uint64(b) != self || !slices.Equal(voters, slices.Sorted(slices.Values(seeds))) {
		return errors.New("it is of another seed, or of one with other peers: the seeds of a cluster stay the same")
	}
	if err := errors.Join(memory.ApplySnapshot(&snapshot), memory.SetHardState(&hard)); err != nil {
		return err
	}
	var list []*raftpb.Entry
	last := snapshot.GetMetadata().GetIndex()
	err := entries.ForEach(func(_, b []byte) error {
		e := new(raftpb.Entry)
		list = append(list, e)
		return proto.Unmarshal(b, e)
	})
	if err != nil {
		return err
	}
	for i, e := range list {
		if e.GetIndex() != list[0].GetIndex()+uint64(i) {
			return fmt.Errorf("damaged: entry %d follows entry %d", e.GetIndex(), list[i-1].GetIndex())
		}
	}
	if len(list) > 0 {
		if first := list[0].GetIndex(); first > last+1 {
			return fmt.Errorf("damaged: it begins with entry %d, after those up to %d", first, last)
		}
		last = max(last, list[len(list)-1].GetIndex())
	}
	if hard.GetCommit() > last || hard.GetCommit() < snapshot.GetMetadata().GetIndex() {
		return fmt.Errorf("damaged: entry %d was agreed on, and it ends with %d", hard.GetCommit(), last)
	}
	return memory.Append(list)
}

// keep writes a state, a snapshot, which takes the place of all entries, and entries,
// which take that of those from the first of them on; the last two if there are any.
func (d *disk) keep(hard *raftpb.HardState, list []*raftpb.Entry, snapshot *raftpb.Snapshot) error {
	return d.db.Update(func(tx *bolt.Tx) error {
		state, entries := tx.Bucket([]byte(stateBucket)), tx.Bucket([]byte(entriesBucket))
		if err := put(state, hardKey, hard); err != nil {
			return err
		}
		if !raft.IsEmptySnap(snapshot) {
			if err := errors.Join(put(state, snapshotKey, snapshot), remove(entries, 0, ^uint64(0))); err != nil {
				return err
			}
		}
		if len(list) == 0 {
			return nil
		}
		if err := remove(entries, list[0].GetIndex(), ^uint64(0)); err != nil {
			return err
		}
		for _, e := range list {
			if err := put(entries, string(key(e.GetIndex())), e); err != nil {
				return err
			}
		}
		return nil
	})
}

// compact writes a state and a snapshot, and removes the entries up to an index.
func (d *disk) compact(hard *raftpb.HardState, snapshot *raftpb.Snapshot, upTo uint64) error {
	return d.db.Update(func(tx *bolt.Tx) error {
		state := tx.Bucket([]byte(stateBucket))
		return errors.Join(put(state, hardKey, hard), put(state, snapshotKey, snapshot), remove(tx.Bucket([]byte(entriesBucket)), 0, upTo))
	})
}

// remove removes the entries of some indices, both ends included.
func remove(entries *bolt.Bucket, from, to uint64) error {
	var keys [][]byte
	c := entries.Cursor()
	for k, _ := c.Seek(key(from)); k != nil && binary.BigEndian.Uint64(k) <= to; k, _ = c.Next() {
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if err := entries.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func key(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func put(b *bolt.Bucket, key string, m proto.Message) error {
	value, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	return b.Put([]byte(key), value)
}

func get(b *bolt.Bucket, key string, m proto.Message) error {
	value := b.Get([]byte(key))
	if value == nil {
		return fmt.Errorf("damaged: it has no %s", key)
	}
	return proto.Unmarshal(value, m)
}
