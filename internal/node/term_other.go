//go:build !unix

package node

// OnTerm does nothing: there is no SIGTERM.
func OnTerm(f func()) (stop func()) { return func() {} }
