//go:build !unix

package recorder

// OnQuit does nothing: there is no SIGQUIT.
func OnQuit(dump func()) (stop func()) { return func() {} }
