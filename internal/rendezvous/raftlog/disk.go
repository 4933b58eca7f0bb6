package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nexar-go/nexar/consensus"
)

// The files of a state directory.
const (
	stateFile    = "seeds.db"
	lockFileName = "seeds.lock"
	// newSuffix marks an incomplete file, and setAsideSuffix one that ForgetState has
	// replaced.
	newSuffix      = ".new"
	setAsideSuffix = ".forgotten"
)

// lockTimeout bounds the wait for another process to release the directory.
const lockTimeout = time.Second

// stateBytesMax bounds the file that is read.
const stateBytesMax = 1 << 30

// usedText is the content of the lock file of a directory that has held a state. If the state
// is missing there, it is lost, and the seed must not start with an empty log.
const usedText = "This directory holds the state of a seed, in " + stateFile + ".\n"

// errLocked reports that another process uses the directory.
var errLocked = errors.New("in use by another seed")

// A disk is the durable copy of a log. It is one file, which each change replaces, so that
// after a crash the file is that before the change or that after it.
type disk struct {
	path string
	lock *os.File
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
	d := &disk{path: filepath.Join(cfg.Dir, stateFile), lock: lock}
	c, err := d.open(cfg)
	if err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	return d, c, nil
}

func lockDir(dir string) (*os.File, error) {
	for began := time.Now(); ; time.Sleep(lockTimeout / 50) {
		f, err := lockFile(filepath.Join(dir, lockFileName))
		if !errors.Is(err, errLocked) || time.Since(began) > lockTimeout {
			return f, err
		}
	}
}

func (d *disk) open(cfg *consensus.Config) (*contents, error) {
	c, err := d.read(len(cfg.Seeds) > 1)
	switch {
	case cfg.ForgetState && errors.Is(err, ErrDamaged):
		cfg.Logger.Warn("damaged state of this seed is set aside", "err", err, "suffix", setAsideSuffix)
	case err != nil:
		return nil, err
	case c == nil:
	case seedOf(c.member) != cfg.Self || !bytes.Equal(c.seeds, encodeSeeds(cfg.Seeds)):
		return nil, fmt.Errorf("state of this seed in %s: it belongs to another seed, or to one with other peers: the seeds of a cluster must not change", d.path)
	case cfg.ForgetState:
		cfg.Logger.Warn("state of this seed is not damaged and is kept: to forget it, empty its directory", "path", d.path)
	}
	if c == nil {
		c, err = d.create(cfg)
	} else {
		// The last process may have been killed before it synced the name of the file.
		err = syncDir(filepath.Dir(d.path))
	}
	if err == nil {
		err = d.markUsed()
	}
	if err != nil {
		return nil, fmt.Errorf("state of this seed: %w", err)
	}
	return c, nil
}

// read reads the state. It returns nil if there has never been one.
func (d *disk) read(several bool) (*contents, error) {
	failed := func(err error) error { return &FileError{Path: d.path, Problem: err.Error(), several: several} }
	info, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		isUsed, err := d.isUsed()
		if err == nil && isUsed {
			err = failed(fmt.Errorf("it does not exist, and according to %s this directory has held the state of this seed", lockFileName))
		}
		return nil, err
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > stateBytesMax) {
		return nil, failed(fmt.Errorf("it is not a regular file of at most %d bytes", stateBytesMax))
	}
	b, err := os.ReadFile(d.path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("state of this seed: %w", err)
	case err != nil:
		return nil, failed(fmt.Errorf("it cannot be read: %w", err))
	}
	c, err := parseContents(b)
	switch {
	case errors.Is(err, errVersion):
		return nil, fmt.Errorf("%s cannot be used: %w", d.path, err)
	case err != nil:
		return nil, failed(err)
	}
	return c, nil
}

// create creates a state, and sets a damaged one aside. With ForgetState the directory is marked
// first: a crash before the file has its name must not look like the first start of a seed.
func (d *disk) create(cfg *consensus.Config) (*contents, error) {
	member := cfg.Self
	if cfg.ForgetState {
		member = newMember(cfg.Self)
		if err := d.markUsed(); err != nil {
			return nil, err
		}
		if err := os.Rename(d.path, d.path+setAsideSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	c := newContents(member, cfg.Seeds)
	if err := d.save(c); err != nil {
		return nil, err
	}
	return c, syncDir(filepath.Dir(filepath.Dir(d.path))) // The directory may be new.
}

func (d *disk) isUsed() (bool, error) {
	info, err := d.lock.Stat()
	return err == nil && info.Size() > 0, err
}

func (d *disk) markUsed() error {
	if isUsed, err := d.isUsed(); err != nil || isUsed {
		return err
	}
	if _, err := d.lock.WriteAt([]byte(usedText), 0); err != nil {
		return err
	}
	return d.lock.Sync()
}

// save replaces the state. When it returns nil, the new one survives a crash of the process
// and of the machine. After an error, it is the old or the new one.
func (d *disk) save(c *contents) error {
	b, err := c.marshal()
	if err != nil {
		return err
	}
	err = writeFile(d.path+newSuffix, b)
	if err == nil {
		err = os.Rename(d.path+newSuffix, d.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(d.path))
	}
	if err != nil {
		return fmt.Errorf("%w. Every change that this seed has acknowledged is in %s: make the disk writable, and start the seed again", err, d.path)
	}
	return nil
}

// writeFile creates or replaces a file, and syncs it.
func writeFile(path string, b []byte) error {
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

// close releases the lock.
func (d *disk) close() error { return d.lock.Close() }
