//go:build !unix

package transport

// MaxFiles returns the number of files that this process may have open, or 0 if it is not known.
func MaxFiles() uint64 { return 0 }
