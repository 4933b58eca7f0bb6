//go:build !unix

package host

// MaxFiles returns the number of files that this process may have open, or 0 if it is not known.
func MaxFiles() uint64 { return 0 }
