package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// The files of a state directory.
const (
	databaseFile = "seeds.db"
	counterFile  = "seeds.commits"
	lockFileName = "seeds.lock"
	// newSuffix marks an incomplete file, and setAsideSuffix one that ForgetState has
	// replaced.
	newSuffix      = ".new"
	setAsideSuffix = ".forgotten"
)

// A FileError reports a file of a state directory that is damaged, missing, foreign, or
// older than the last acknowledged transaction.
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
	return fmt.Sprintf("%s cannot be used: %s. If it was moved or replaced, put back the files of this directory as this seed has left them; otherwise %s", e.Path, e.Problem, remedy)
}

// Unwrap makes every FileError an ErrDamaged.
func (e *FileError) Unwrap() error { return ErrDamaged }

func formatError(version uint32) error {
	return fmt.Errorf("its format has version %d, and this version of nexar reads and writes version %d", version, formatVersion)
}

// contents are the contents of a state directory.
type contents struct {
	identity
	seal
	hard     raftpb.HardState
	snapshot raftpb.Snapshot
	entries  []*raftpb.Entry
	sums     sums
	// acknowledged is the last acknowledged transaction: commit or commit-1.
	acknowledged uint64
}

// readState reads and checks a state directory. It returns nil if the directory has no
// log.
func readState(dir string, several bool) (*contents, error) {
	path, counterPath := filepath.Join(dir, databaseFile), filepath.Join(dir, counterFile)
	failed := func(path string, err error) error {
		return &FileError{Path: path, Problem: err.Error(), several: several}
	}
	counter, counterErr := readCounter(counterPath)
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, checkAbsent(path, counterPath, counter, counterErr, failed)
	case err != nil:
		return nil, fmt.Errorf("state of this seed: %w", err)
	}
	defer f.Close()
	// The database is read first, since a file of another format has no counter.
	c, err := readDatabase(f)
	if err != nil {
		return nil, failed(path, err)
	}
	switch {
	case errors.Is(counterErr, fs.ErrNotExist):
		return nil, failed(counterPath, errors.New("it does not exist, and without it "+databaseFile+" may be an older state of this seed"))
	case errors.Is(counterErr, fs.ErrPermission):
		return nil, fmt.Errorf("state of this seed: %w", counterErr)
	case counterErr != nil:
		return nil, failed(counterPath, counterErr)
	}
	if file, err := c.compare(counter); err != nil {
		return nil, failed(filepath.Join(dir, file), err)
	}
	c.acknowledged = counter.commit
	return c, nil
}

// checkAbsent returns an error if a database must have existed: the counter counts more
// than the first transaction, or is damaged.
func checkAbsent(path, counterPath string, c counterState, err error, failed func(string, error) error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("state of this seed: %w", err)
	case err != nil:
		return failed(counterPath, err)
	case c.commit > firstCommit || c.torn:
		return failed(path, fmt.Errorf("it does not exist, and according to %s it held commit %d", counterFile, c.commit))
	}
	return nil
}

// compare checks that the database holds the last acknowledged transaction, or the one
// after it. A transaction is acknowledged when it is in the database and then in the
// counter: docs/adr/0026 has a table of the states after a crash. It returns the name
// of the faulty file.
func (c *contents) compare(counter counterState) (file string, err error) {
	switch {
	case c.file != counter.file:
		return counterFile, fmt.Errorf("it belongs to another %s", databaseFile)
	case c.commit < counter.commit:
		return databaseFile, fmt.Errorf("it holds commit %d, older than commit %d, which this seed has acknowledged", c.commit, counter.commit)
	case c.commit > counter.commit+1:
		return counterFile, fmt.Errorf("it holds commit %d, too old for commit %d in %s", counter.commit, c.commit, databaseFile)
	case c.commit == counter.commit && counter.torn:
		return counterFile, fmt.Errorf("one of its two copies is invalid, and %s does not hold the commit that was written there", databaseFile)
	case c.commit == counter.commit && c.digest != counter.digest:
		return databaseFile, fmt.Errorf("the digest of commit %d is %016x, and %016x in %s", c.commit, c.digest, counter.digest, counterFile)
	}
	return "", nil
}

// readDatabase reads and checks seeds.db.
func readDatabase(f *os.File) (*contents, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() == 0:
		return nil, errors.New("it is empty, which nexar never leaves behind")
	}
	buckets, err := readBuckets(f, info.Size())
	if err != nil {
		return nil, err
	}
	return parseContents(buckets)
}

func parseContents(buckets map[string][]pair) (*contents, error) {
	state, ok := buckets[stateBucket]
	entries, ok2 := buckets[entriesBucket]
	if !ok || !ok2 || len(buckets) != 2 {
		return nil, errForeign
	}
	values := make(map[string][]byte)
	for _, p := range state {
		values[string(p.key)] = p.value
	}
	c := new(contents)
	if err := c.parseIdentity(values); err != nil {
		return nil, err
	}
	for _, key := range []string{hardKey, snapshotKey, sealKey} {
		if values[key] == nil {
			return nil, fmt.Errorf("it lacks the record %s", key)
		}
	}
	if len(values) != 4 {
		return nil, fmt.Errorf("it has %d records, expected 4", len(values))
	}
	var err error
	if c.sums.hard, err = decodeMessage(hardKey, values[hardKey], &c.hard); err != nil {
		return nil, err
	}
	if c.sums.snapshot, err = decodeMessage(snapshotKey, values[snapshotKey], &c.snapshot); err != nil {
		return nil, err
	}
	if err := c.parseEntries(entries); err != nil {
		return nil, err
	}
	b, _, err := decodeValue(sealKey, values[sealKey])
	if err == nil {
		c.seal, err = parseSeal(b)
	}
	if err == nil && c.sums.digest() != c.digest {
		err = fmt.Errorf("the digest of its records is %016x, and %016x was sealed as commit %d", c.sums.digest(), c.digest, c.commit)
	}
	return c, err
}

// parseIdentity distinguishes files of other formats from damaged ones.
func (c *contents) parseIdentity(values map[string][]byte) error {
	if values[identityKey] == nil && values["self"] != nil {
		return formatError(1)
	}
	if values[identityKey] == nil {
		return fmt.Errorf("it lacks the record %s", identityKey)
	}
	b, sum, err := decodeValue(identityKey, values[identityKey])
	if err != nil {
		return err
	}
	id, version, err := parseIdentity(b)
	if err != nil {
		return err
	}
	if version != formatVersion {
		return formatError(version)
	}
	c.identity, c.sums.identity = id, sum
	return nil
}

func (c *contents) parseEntries(entries []pair) error {
	last := c.snapshot.GetMetadata().GetIndex()
	for i, p := range entries {
		e := new(raftpb.Entry)
		sum, err := decodeMessage(string(p.key), p.value, e)
		if err != nil {
			return err
		}
		index := e.GetIndex()
		if len(p.key) != 8 || binary.BigEndian.Uint64(p.key) != index || i > 0 && index != c.sums.first+uint64(i) {
			return fmt.Errorf("%s has index %d, which is out of order", describeKey(string(p.key)), index)
		}
		if i == 0 && index > last+1 {
			return fmt.Errorf("it begins with entry %d, and its snapshot ends with entry %d", index, last)
		}
		c.sums.add(index, sum)
		c.entries = append(c.entries, e)
	}
	if len(c.entries) > 0 {
		last = max(last, c.entries[len(c.entries)-1].GetIndex())
	}
	if commit := c.hard.GetCommit(); commit > last || commit < c.snapshot.GetMetadata().GetIndex() {
		return fmt.Errorf("it ends with entry %d, and its record %s counts %d as committed", last, hardKey, commit)
	}
	return nil
}

// belongsTo checks that the files belong to a seed.
func (c *contents) belongsTo(seed uint64, seeds []uint64) error {
	if seedOf(c.member) != seed || !slices.Equal(slices.Sorted(slices.Values(c.seeds)), slices.Sorted(slices.Values(seeds))) {
		return errors.New("it belongs to another seed, or to one with other peers: the seeds of a cluster must not change")
	}
	return nil
}
