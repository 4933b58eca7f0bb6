package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

// lockTimeout bounds the wait for another process to release the directory.
const (
	lockTimeout = time.Second
	lockRetry   = 20 * time.Millisecond
)

// errLocked reports that another process uses the directory.
var errLocked = errors.New("in use by another seed")

// A disk is the durable copy of a log: a transaction survives a crash of the process
// and of the machine once commit has returned nil. One goroutine at a time uses it.
type disk struct {
	dir     string
	lock    *os.File
	db      *bolt.DB
	file    *os.File // of db
	counter *counter
	sums    sums // of the records in db
	several bool // other seeds exist
	// faulted: bbolt has panicked and holds its locks, so it must not be called any
	// more.
	faulted bool
	failed  error // why no further transaction is possible
}

// openDisk opens and reads the log in a directory. If there is none, it creates an
// empty log with the seeds as voters.
func openDisk(cfg *consensus.Config) (*disk, *contents, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("directory of the state of this seed: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("state of this seed in %s: %w", cfg.Dir, err)
	}
	d := &disk{dir: cfg.Dir, lock: lock, several: len(cfg.Seeds) > 1}
	c, err := d.open(cfg)
	if err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	return d, c, nil
}

func lockDir(dir string) (*os.File, error) {
	for began := time.Now(); ; time.Sleep(lockRetry) {
		f, err := lockFile(filepath.Join(dir, lockFileName))
		if !errors.Is(err, errLocked) || time.Since(began) > lockTimeout {
			return f, err
		}
	}
}

func (d *disk) open(cfg *consensus.Config) (*contents, error) {
	c, err := readState(d.dir, d.several)
	switch {
	case cfg.ForgetState && errors.Is(err, ErrDamaged):
		cfg.Logger.Warn("damaged state of this seed is set aside", "err", err, "suffix", setAsideSuffix)
		c, err = nil, nil
	case cfg.ForgetState && c != nil:
		cfg.Logger.Warn("state of this seed is not damaged and is kept: to forget it, empty its directory", "dir", d.dir)
	}
	if err != nil {
		return nil, err
	}
	path := filepath.Join(d.dir, databaseFile)
	if c == nil {
		if err := d.guard(func() error { return createState(d.dir, cfg) }); err != nil {
			return nil, fmt.Errorf("creating the state of this seed in %s: %w", d.dir, err)
		}
		if c, err = readState(d.dir, d.several); err != nil {
			return nil, err
		}
	}
	if err := c.belongsTo(cfg.Self, cfg.Seeds); err != nil {
		return nil, fmt.Errorf("state of this seed in %s: %w", path, err)
	}
	if err := d.openFiles(c); err != nil {
		return nil, err
	}
	d.sums = c.sums.clone()
	return c, nil
}

// openFiles opens the files for writing, after readState has checked them.
func (d *disk) openFiles(c *contents) error {
	path := filepath.Join(d.dir, databaseFile)
	if err := d.guard(func() (err error) { d.db, err = openBolt(path, 0, &d.file); return err }); err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	f, err := os.OpenFile(filepath.Join(d.dir, counterFile), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("state of this seed: %w", err)
	}
	d.counter = &counter{f: f, file: c.file, last: c.seal}
	// A crash may have prevented the acknowledgement of the last transaction. It is
	// complete and therefore counts. It must be on disk before the counter: the killed
	// process may have left it in the page cache only.
	if c.acknowledged != c.commit {
		if err := d.guard(d.db.Sync); err != nil {
			return fmt.Errorf("writing %s to the disk: %w", path, err)
		}
		if err := d.counter.write(c.seal); err != nil {
			return fmt.Errorf("state of this seed: %w", err)
		}
	}
	// bbolt must see the transaction that was checked.
	return d.guard(func() error {
		return d.db.View(func(tx *bolt.Tx) error {
			want, _ := encodeValue(sealKey, c.seal.marshal())
			if b := tx.Bucket([]byte(stateBucket)); b == nil || !bytes.Equal(b.Get([]byte(sealKey)), want) {
				return d.fileError("it has changed while it was opened")
			}
			return nil
		})
	})
}

// openBolt opens a database. It must exist unless flags create it.
func openBolt(path string, flags int, file **os.File) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockTimeout,
		OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
			f, err = os.OpenFile(name, flag&^os.O_CREATE|flags, mode)
			*file = f
			return f, err
		},
	})
}

func (d *disk) fileError(problem string) error {
	return &FileError{Path: filepath.Join(d.dir, databaseFile), Problem: problem, several: d.several}
}

// guard calls a function that uses bbolt, and returns its panics as errors. bbolt reads
// the file through a memory map, which faults if the file cannot be read or was
// truncated, and panics on inconsistent pages.
func (d *disk) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			d.faulted = true
			problem := fmt.Sprintf("bbolt has found it damaged: %v", r)
			if _, isFault := r.(interface{ Addr() uintptr }); isFault {
				problem = "reading it has caused a memory fault, as when the disk fails or the file is truncated while it is in use"
			}
			err = d.fileError(problem)
		}
	}()
	return f()
}

// close closes the files and releases the lock.
func (d *disk) close() (err error) {
	if d.counter != nil {
		err = d.counter.f.Close()
	}
	switch {
	case d.faulted && d.file != nil:
		err = errors.Join(err, d.file.Close()) // Its map stays until the process ends.
	case d.db != nil && !d.faulted:
		err = errors.Join(err, d.db.Close())
	}
	return errors.Join(err, d.lock.Close())
}

// A transaction changes the records of the database together with their checksums.
type transaction struct {
	state, entries *bolt.Bucket
	sums           sums
}

// commit runs a transaction. When it returns nil, the transaction is on disk and
// acknowledged. After an error, no further one is possible.
func (d *disk) commit(change func(*transaction) error) error {
	if d.failed != nil {
		return d.failed
	}
	t := &transaction{sums: d.sums.clone()}
	s := seal{commit: d.counter.last.commit + 1}
	err := d.guard(func() error {
		return d.db.Update(func(tx *bolt.Tx) error {
			t.state, t.entries = tx.Bucket([]byte(stateBucket)), tx.Bucket([]byte(entriesBucket))
			if t.state == nil || t.entries == nil {
				return d.fileError("its buckets are gone")
			}
			if err := change(t); err != nil {
				return err
			}
			s.digest = t.sums.digest()
			return t.seal(s)
		})
	})
	if err == nil {
		err = d.counter.write(s)
	}
	if err != nil {
		d.failed = err
		return err
	}
	d.sums = t.sums
	return nil
}

// keep writes the hard state; a snapshot, if not empty, which replaces all entries; and
// entries, which replace those from the first of them on.
func (d *disk) keep(hard *raftpb.HardState, list []*raftpb.Entry, snapshot *raftpb.Snapshot) error {
	return d.commit(func(t *transaction) error {
		if err := t.putHard(hard); err != nil {
			return err
		}
		if !raft.IsEmptySnap(snapshot) {
			if err := errors.Join(t.putSnapshot(snapshot), t.dropUpTo(^uint64(0))); err != nil {
				return err
			}
		}
		if len(list) == 0 {
			return nil
		}
		if err := t.dropFrom(list[0].GetIndex()); err != nil {
			return err
		}
		for _, e := range list {
			if err := t.putEntry(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// compact writes the hard state and a snapshot, and removes the entries up to an index.
func (d *disk) compact(hard *raftpb.HardState, snapshot *raftpb.Snapshot, upTo uint64) error {
	return d.commit(func(t *transaction) error {
		return errors.Join(t.putHard(hard), t.putSnapshot(snapshot), t.dropUpTo(upTo))
	})
}

func (t *transaction) putHard(m *raftpb.HardState) (err error) {
	t.sums.hard, err = putMessage(t.state, hardKey, m)
	return err
}

func (t *transaction) putSnapshot(m *raftpb.Snapshot) (err error) {
	t.sums.snapshot, err = putMessage(t.state, snapshotKey, m)
	return err
}

func (t *transaction) putEntry(e *raftpb.Entry) error {
	sum, err := putMessage(t.entries, string(indexKey(e.GetIndex())), e)
	t.sums.add(e.GetIndex(), sum)
	return err
}

func (t *transaction) seal(s seal) error {
	value, _ := encodeValue(sealKey, s.marshal())
	return t.state.Put([]byte(sealKey), value)
}

func (t *transaction) dropFrom(index uint64) error {
	t.sums.dropFrom(index)
	c := t.entries.Cursor()
	k, _ := c.Seek(indexKey(index))
	return t.drop(c, k, nil)
}

func (t *transaction) dropUpTo(index uint64) error {
	t.sums.dropUpTo(index)
	c := t.entries.Cursor()
	k, _ := c.First()
	return t.drop(c, k, indexKey(index))
}

// drop removes the entries from a key to another one, which is nil for the end.
func (t *transaction) drop(c *bolt.Cursor, k, last []byte) error {
	var keys [][]byte
	for ; k != nil && (last == nil || bytes.Compare(k, last) <= 0); k, _ = c.Next() {
		keys = append(keys, slices.Clone(k))
	}
	for _, k := range keys {
		if err := t.entries.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

func putMessage(b *bolt.Bucket, key string, m proto.Message) (sum uint32, err error) {
	payload, err := proto.Marshal(m)
	if err != nil {
		return 0, err
	}
	value, sum := encodeValue(key, payload)
	return sum, b.Put([]byte(key), value)
}
