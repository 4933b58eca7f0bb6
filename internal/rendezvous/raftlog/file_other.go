//go:build !windows && !linux

package raftlog

import "os"

// syncData syncs a file.
func syncData(f *os.File) error { return f.Sync() }
