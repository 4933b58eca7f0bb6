package meet

import (
	"errors"
	"os"
	"path/filepath"
)

// statePrefix begins the names of directories for the state of seeds.
const statePrefix = "nexar-seed-"

// A StateDir is a directory for the state of a seed that ends with its process.
type StateDir struct {
	Path string
	lock *os.File // nil where directories have no locks
}

// NewStateDir makes a directory. It removes those of this user's processes that have been killed.
func NewStateDir() (*StateDir, error) {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), statePrefix+"*")) // The pattern is valid.
	for _, path := range left {
		if lock := lockDir(path, false); lock != nil {
			_ = os.RemoveAll(path) // Another process may remove it as well.
			lock.Close()
		}
	}
	for {
		path, err := os.MkdirTemp("", statePrefix)
		if err != nil {
			return nil, err
		}
		lock := lockDir(path, true)
		if _, err := os.Lstat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
			return &StateDir{path, lock}, nil
		}
		lock.Close() // Another process has removed the directory before it had a lock.
	}
}

// Close removes the directory. A nil StateDir has none.
func (d *StateDir) Close() error {
	if d == nil {
		return nil
	}
	err := os.RemoveAll(d.Path)
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}
