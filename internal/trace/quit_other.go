//go:build !unix

package trace

// OnQuit does nothing: there is no SIGQUIT.
func OnQuit(dump func()) (stop func()) { return func() {} }
