//go:build !windows && !linux

package raftlog

import "os"

// syncData writes the data of a file to the disk.
func syncData(f *os.File) error { return f.Sync() }
