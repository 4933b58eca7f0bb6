//go:build !unix

package transport

func filesMax() (uint64, bool) { return 0, false }
