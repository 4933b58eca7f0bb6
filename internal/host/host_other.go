//go:build !linux && !darwin && !freebsd && !windows

package host

// systemHost is empty: what this system calls a host is not known here.
func systemHost() string { return "" }
