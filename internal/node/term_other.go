//go:build !unix

package node

// OnTerm does nothing: this system has no SIGTERM.
func OnTerm(f func()) (stop func()) { return func() {} }
