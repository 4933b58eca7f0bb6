//go:build !linux && !darwin && !freebsd && !windows

package host

// systemHost returns "": this package knows no host ID of this system.
func systemHost() string { return "" }
