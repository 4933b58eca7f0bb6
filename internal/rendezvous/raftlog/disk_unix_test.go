//go:build !windows

package raftlog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A truncatingJournal truncates a file when it applies its first change. The log calls it between two
// transactions: a transaction that runs while the file is truncated may write all pages that are in use again,
// and then the file is whole.
type truncatingJournal struct {
	journal
	path string
}

func (j *truncatingJournal) Apply(change []byte) {
	if len(j.lines) == 0 {
		if err := os.Truncate(j.path, 0); err != nil {
			panic(err)
		}
	}
	j.journal.Apply(change)
}

// The truncation of the file during use ends the log with an error: bbolt faults when
// it reads the missing pages.
func TestFaultWhileRunning(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), 1)
	j := &truncatingJournal{path: filepath.Join(cfg.Dir, databaseFile)}
	cfg.StateMachine, cfg.Send = j, func(uint64, []byte) {}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for isDone := false; !isDone; {
		_, _, term := j.state()
		l.Propose(term, []byte("change"))
		select {
		case <-l.Done():
			isDone = true
		case <-time.After(time.Millisecond):
		}
	}
	if e := new(FileError); !errors.As(l.Err(), &e) || e.Path != j.path {
		t.Errorf("error %v", l.Err())
	}
	t.Log(l.Err())
	if _, _, err := openDisk(&cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("the log can be opened again: %v", err)
	}
}
