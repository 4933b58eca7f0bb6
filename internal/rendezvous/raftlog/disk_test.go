package raftlog

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// lastTransaction creates a history, and returns its files and states before and after
// the last transaction, which adds entries.
func lastTransaction(t *testing.T) (h *history, before, after files, was *model) {
	h = newHistory(t, rand.New(rand.NewPCG(1, 2)), 60, false)
	h.open()
	was = h.model.clone()
	list := []*raftpb.Entry{{Index: proto.Uint64(h.last() + 1), Term: h.hard.Term, Data: h.bytes(3000)}}
	h.entries = append(slices.Clone(h.entries), list...)
	if err := h.d.keep(h.hard, list, nil); err != nil {
		t.Fatal(err)
	}
	h.close()
	return h, h.past[len(h.past)-1], readFiles(t, h.cfg.Dir), was
}

// headerAt returns the offset of the header that the last transaction has written;
// header is its page.
func (f files) headerAt() int {
	size := os.Getpagesize()
	a, _, okA := parseMeta(f[databaseFile][pageHeader:])
	b, _, okB := parseMeta(f[databaseFile][size+pageHeader:])
	if !okA || okB && b.txid > a.txid {
		return size
	}
	return 0
}

func (f files) header() []byte { return f[databaseFile][f.headerAt():][:os.Getpagesize()] }

// A crash at any point of a transaction leaves the state before or after it, and the
// state after it once the counter is written.
func TestCrash(t *testing.T) {
	t.Parallel()
	h, before, after, was := lastTransaction(t)
	size := os.Getpagesize()
	check := func(point string, f files, allowed ...*model) {
		t.Helper()
		c, err := h.opened(f)
		if err != nil {
			t.Errorf("%s: %v", point, err)
			return
		}
		if !slices.ContainsFunc(allowed, func(m *model) bool { return m.differs(c) == "" }) {
			t.Errorf("%s: wrong state, commit %d", point, c.commit)
		}
	}
	// The header is written when all other pages are on disk.
	noHeader := after.clone()
	noHeader[counterFile] = before[counterFile]
	at, newHeader := noHeader.headerAt(), slices.Clone(noHeader.header())
	copy(noHeader.header(), before[databaseFile][at:])
	check("no header", noHeader, was)
	for range 20 {
		f := noHeader.clone()
		for p := 2 * size; p < len(before[databaseFile]); p += size {
			if h.rng.IntN(2) == 0 {
				copy(f[databaseFile][p:][:size], before[databaseFile][p:])
			}
		}
		check("some pages", f, was)
	}
	for n := 0; n <= pageHeader+metaBytes; n += 4 {
		f := noHeader.clone()
		copy(f[databaseFile][at:], newHeader[:n])
		check("torn header", f, was, &h.model)
	}
	f := noHeader.clone()
	copy(f[databaseFile][at:], newHeader)
	check("no counter yet", f, &h.model)
	// The counter is written when the header is on disk.
	offset := copyStride * int(h.d.counter.last.commit%2)
	for n := 0; n <= copyBytes; n += 4 {
		f := after.clone()
		f[counterFile] = slices.Clone(before[counterFile])
		copy(f[counterFile][offset:], after[counterFile][offset:][:n])
		check("torn copy", f, &h.model)
	}
	check("no crash", after, &h.model)
}

// Once the counter is written, a return to the state before is an error.
func TestRollback(t *testing.T) {
	t.Parallel()
	h, before, after, _ := lastTransaction(t)
	cases := map[string]func(files){
		"older database": func(f files) { f[databaseFile] = before[databaseFile] },
		"invalid header": func(f files) { clear(f.header()) },
		"damaged header": func(f files) { f.header()[pageHeader+40] ^= 1 },
		"no counter":     func(f files) { delete(f, counterFile) },
		"no database":    func(f files) { delete(f, databaseFile) },
		"empty database": func(f files) { f[databaseFile] = nil },
		"invalid header, copy": func(f files) {
			clear(f.header())
			clear(f[counterFile][copyStride*int(h.d.counter.last.commit%2):][:copyBytes])
		},
	}
	for name, damage := range cases {
		f := after.clone()
		damage(f)
		if c, err := h.opened(f); err == nil {
			t.Errorf("%s: no error, commit %d", name, c.commit)
		} else if e := new(FileError); !errors.As(err, &e) || !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// Errors name the file, the problem and the remedy.
func TestFileErrors(t *testing.T) {
	t.Parallel()
	for _, seeds := range []int{1, 3} {
		cfg := testConfig(t.TempDir(), seeds)
		path := filepath.Join(cfg.Dir, databaseFile)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := openDisk(&cfg)
		remedy := "start a new world in an empty directory"
		if seeds > 1 {
			remedy = "start this seed with --forget-state"
		}
		if err == nil || !strings.HasPrefix(err.Error(), path+" cannot be used: it is empty") || !strings.Contains(err.Error(), remedy) {
			t.Errorf("empty file: error %v", err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != 0 {
			t.Errorf("the file was changed: %v, %v", info, err)
		}
	}
}

// Version 1 had no checksums and no identity.
func TestFormatVersion(t *testing.T) {
	t.Parallel()
	for version, fill := range map[string]func(tx *bolt.Tx) error{
		"version 1": func(tx *bolt.Tx) error {
			state, err := tx.CreateBucket([]byte(stateBucket))
			if err != nil {
				return err
			}
			_, err = tx.CreateBucket([]byte(entriesBucket))
			return errors.Join(err, state.Put([]byte("self"), indexKey(1<<40)), state.Put([]byte(hardKey), []byte{8, 1}))
		},
		"version 9": func(tx *bolt.Tx) error {
			state, err := tx.CreateBucket([]byte(stateBucket))
			if err != nil {
				return err
			}
			_, err = tx.CreateBucket([]byte(entriesBucket))
			value, _ := encodeValue(identityKey, []byte{9, 0, 0, 0, 1})
			return errors.Join(err, state.Put([]byte(identityKey), value))
		},
	} {
		cfg := testConfig(t.TempDir(), 1)
		db, err := bolt.Open(filepath.Join(cfg.Dir, databaseFile), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(fill), db.Close()); err != nil {
			t.Fatal(err)
		}
		_, _, err = openDisk(&cfg)
		if err == nil || !strings.Contains(err.Error(), "its format has "+version) || !strings.Contains(err.Error(), "reads and writes version 2") {
			t.Errorf("%s: error %v", version, err)
		}
	}
}

// A crash during the creation of the files leads to new ones. A crash during the
// replacement of damaged ones does not lead to an empty log.
func TestCrashWhileCreating(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), 3)
	reopen := func() (*contents, error) {
		d, c, err := openDisk(&cfg)
		if err == nil {
			err = d.close()
		}
		return c, err
	}
	path, counterPath := filepath.Join(cfg.Dir, databaseFile), filepath.Join(cfg.Dir, counterFile)
	if err := os.WriteFile(path+newSuffix, []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // a crash before the rename
		t.Fatal(err)
	}
	c, err := reopen()
	if err != nil || c.member != cfg.Self {
		t.Fatalf("after a crash during creation: %v", err)
	}

	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	cfg.ForgetState = true
	c, err = reopen()
	if err != nil || c.member == cfg.Self || seedOf(c.member) != cfg.Self {
		t.Fatalf("damaged files are not replaced: %v", err)
	}
	if info, err := os.Stat(path + setAsideSuffix); err != nil || info.Size() != 100 {
		t.Errorf("the damaged file is not kept: %v", err)
	}
	member := c.member
	if c, err := reopen(); err != nil || c.member != member {
		t.Errorf("an intact state is forgotten: %v", err)
	}
	cfg.ForgetState = false
	if c, err := reopen(); err != nil || c.member != member {
		t.Errorf("a seed that has begun to learn does not continue: %v", err)
	}
	if err := os.Remove(path); err != nil { // a crash before the rename
		t.Fatal(err)
	}
	if _, err := reopen(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a seed without its state starts with an empty log: error %v", err)
	}
	if err := os.Remove(counterPath); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestForgetStateAlone(t *testing.T) {
	cfg := testConfig(t.TempDir(), 1)
	cfg.ForgetState, cfg.Logger = true, slog.New(slog.DiscardHandler)
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "empty state directory") {
		t.Errorf("error %v", err)
	}
}
