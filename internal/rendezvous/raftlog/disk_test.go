package raftlog

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// lastChange creates a history, and returns its files and states before and after
// the last change, which adds an entry.
func lastChange(t *testing.T) (h *history, before, after files, was *model) {
	h = newHistory(t, rand.New(rand.NewPCG(1, 2)), 60, true)
	h.open()
	was = h.model.clone()
	h.entries = append(slices.Clone(h.entries), &raftpb.Entry{Index: proto.Uint64(h.last() + 1), Term: h.hard.Term, Data: h.bytes(300)})
	if err := h.d.save(h.contents(&h.cfg)); err != nil {
		t.Fatal(err)
	}
	h.close()
	return h, h.past[len(h.past)-1], readFiles(t, h.cfg.Dir), was
}

// A crash during a change leaves a part of the new file under another name, or the new file. The
// state is that before or after the change.
func TestCrash(t *testing.T) {
	t.Parallel()
	h, before, after, was := lastChange(t)
	for n := 0; n <= len(after[stateFile]); n += 97 {
		f := before.clone()
		f[stateFile+newSuffix] = after[stateFile][:n]
		if c, err := h.opened(f); err != nil {
			t.Errorf("a crash after %d bytes: %v", n, err)
		} else if diff := was.differs(c); diff != "" {
			t.Errorf("a crash after %d bytes: %s", n, diff)
		}
	}
	if c, err := h.opened(after); err != nil {
		t.Error(err)
	} else if diff := h.differs(c); diff != "" {
		t.Error(diff)
	}
}

// A state that was shortened, changed at one byte or removed is refused.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	h, _, after, _ := lastChange(t)
	refused := func(what string, at int, b []byte) {
		t.Helper()
		if _, err := parseContents(b); err == nil || errors.Is(err, errVersion) {
			t.Errorf("%s at byte %d of %d: error %v", what, at, len(after[stateFile]), err)
		}
	}
	for at := range after[stateFile] {
		refused("truncated", at, after[stateFile][:at])
		b := slices.Clone(after[stateFile])
		b[at] ^= 1 << (at % 8)
		refused("flipped", at, b)
	}
	f := after.clone()
	delete(f, stateFile)
	if c, err := h.opened(f); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "it does not exist") {
		t.Errorf("no state: contents %v and error %v", c, err)
	}
}

// Errors name the file, the problem and the remedy.
func TestFileErrors(t *testing.T) {
	t.Parallel()
	for _, seeds := range []int{1, 3} {
		cfg := testConfig(t.TempDir(), seeds)
		path := filepath.Join(cfg.Dir, stateFile)
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
	cfg := testConfig(t.TempDir(), 1)
	if err := os.Mkdir(filepath.Join(cfg.Dir, stateFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openDisk(&cfg); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "it is not a regular file") {
		t.Errorf("a directory in place of the file: error %v", err)
	}
}

// An undamaged file of another version is refused and kept, also with ForgetState.
func TestFormatVersion(t *testing.T) {
	t.Parallel()
	// Of versions 1 and 2, the header of the first page of a file of bbolt.
	bbolt := make([]byte, 4096)
	binary.NativeEndian.PutUint32(bbolt[bboltMagicAt:], bboltMagic)
	newer, err := newContents(1<<40, []uint64{1 << 40}).marshal()
	if err != nil {
		t.Fatal(err)
	}
	newer = newer[:len(newer)-sha256.Size]
	newer[len(magic)] = 9
	sum := sha256.Sum256(newer)
	newer = append(newer, sum[:]...)
	for version, b := range map[string][]byte{"1 or 2": bbolt, "9": newer} {
		for _, forget := range []bool{false, true} {
			cfg := testConfig(t.TempDir(), 3)
			cfg.ForgetState = forget
			path := filepath.Join(cfg.Dir, stateFile)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := openDisk(&cfg)
			if err == nil || !strings.HasPrefix(err.Error(), path+" cannot be used: ") || !strings.Contains(err.Error(), "its format has version "+version+", expected 3. End its world with that version of nexar") {
				t.Errorf("version %s: error %v", version, err)
			}
			if now, err := os.ReadFile(path); err != nil || !slices.Equal(now, b) {
				t.Errorf("version %s: the file was changed: %v", version, err)
			}
		}
	}
}

// A crash during the first start leads to another first start. A crash during the
// replacement of a damaged file does not lead to an empty log.
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
	path, lockPath := filepath.Join(cfg.Dir, stateFile), filepath.Join(cfg.Dir, lockFileName)
	if err := errors.Join(os.WriteFile(path+newSuffix, []byte("half of it"), 0o600), os.WriteFile(lockPath, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if c, err := reopen(); err != nil || c.member != cfg.Self {
		t.Fatalf("after a crash before the file has its name: %v", err)
	}
	if err := os.Truncate(lockPath, 0); err != nil { // a crash before the directory is marked
		t.Fatal(err)
	}
	if _, err := reopen(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(lockPath); err != nil || info.Size() == 0 {
		t.Errorf("the directory is not marked as used: %v", err)
	}

	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	cfg.ForgetState = true
	c, err := reopen()
	if err != nil || c.member == cfg.Self || seedOf(c.member) != cfg.Self {
		t.Fatalf("a damaged file is not replaced: %v", err)
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
	if err := os.Remove(lockPath); err != nil {
		t.Fatal(err)
	}
	if _, err := reopen(); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

// A crash of a seed that forgets its state and finds an empty directory is not mistaken for its first start.
func TestForgetfulFirstStart(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), 3)
	cfg.ForgetState = true
	path := filepath.Join(cfg.Dir, stateFile)
	if err := os.Mkdir(path+newSuffix, 0o700); err != nil { // so that the file cannot be written
		t.Fatal(err)
	}
	if _, _, err := openDisk(&cfg); err == nil {
		t.Fatal("the file was written")
	}
	if err := os.Remove(path + newSuffix); err != nil {
		t.Fatal(err)
	}
	cfg.ForgetState = false
	if _, _, err := openDisk(&cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v", err)
	}
}

func TestForgetStateAlone(t *testing.T) {
	cfg := testConfig(t.TempDir(), 1)
	cfg.ForgetState, cfg.Logger = true, slog.New(slog.DiscardHandler)
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "empty state directory") {
		t.Errorf("error %v", err)
	}
}
