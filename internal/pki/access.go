package pki

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/nexar-go/nexar/internal/input"
)

// An access has the permissions and the owner of a file, and the user and the groups of this process.
type access struct {
	mode         fs.FileMode
	owner, group int
	reader       int   // effective user of this process
	groups       []int // of this process
}

// check returns an error if another user than root and the reader can change the file or, if it is secret,
// read it. A secret file of root may be readable by a group of the reader: Kubernetes mounts secret volumes
// so. For other files, the group of the file is trusted.
func (a access) check(secret bool) error {
	others := fs.FileMode(0o002)
	switch {
	case secret && a.owner == 0 && slices.Contains(a.groups, a.group):
		others = 0o037
	case secret:
		others = 0o077
	}
	switch mode := a.mode.Perm(); {
	case a.owner != a.reader && a.owner != 0:
		return fmt.Errorf("it belongs to user %d, who can change it: its owner must be the user of this process (%d) or root", a.owner, a.reader)
	case mode&others == 0:
		return nil
	case secret:
		return fmt.Errorf("it has mode %04o, so that other users can read or change it: run chmod 600 on it", mode)
	default:
		return fmt.Errorf("it has mode %04o, so that every user can change it: run chmod o-w on it", mode)
	}
}

// readChecked reads a file of at most limit bytes after [access.check].
func readChecked(ctx context.Context, path string, limit int, secret bool) ([]byte, error) {
	return input.Read(ctx, path, limit, func(info fs.FileInfo) error { return checkInfo(info, secret) })
}

// checkInfo is [access.check] for a file with this information. It returns nil on systems where that does
// not tell which users have access.
func checkInfo(info fs.FileInfo, secret bool) error {
	a, ok := accessOf(info)
	if !ok {
		return nil
	}
	return a.check(secret)
}

// CheckState returns an error if users other than root and that of this process can change the state
// directory of a seed, or own one of its files. A directory that does not exist is no error.
func CheckState(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		err = errors.New("it is not a directory")
	} else {
		err = checkInfo(info, false)
	}
	if err != nil {
		return fmt.Errorf("state directory %q: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // A temporary file of another seed.
		}
		if err == nil && info.Mode().IsRegular() {
			err = checkInfo(info, false)
		}
		if err != nil {
			return fmt.Errorf("state file %q: %w", filepath.Join(dir, e.Name()), err)
		}
	}
	return nil
}
