//go:build !windows

package raftlog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The truncation of the file during use ends the log with an error: bbolt faults when
// it reads the missing pages.
func TestFaultWhileRunning(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir(), 1)
	cfg.StateMachine, cfg.Send = new(journal), func(uint64, []byte) {}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(cfg.Dir, databaseFile)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	b := cfg.StateMachine.(*journal)
	for {
		_, _, term := b.state()
		l.Propose(term, []byte("change"))
		select {
		case <-l.Done():
		default:
			continue
		}
		break
	}
	if e := new(FileError); !errors.As(l.Err(), &e) || e.Path != path {
		t.Errorf("error %v", l.Err())
	}
	t.Log(l.Err())
	if _, _, err := openDisk(&cfg); !errors.Is(err, ErrDamaged) {
		t.Errorf("the log can be opened again: %v", err)
	}
}
