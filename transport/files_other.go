//go:build !unix

package transport

func maxFiles() (uint64, bool) { return 0, false }
