//go:build !unix

package recorder

// OnQuit does nothing: there is no SIGQUIT.
func OnQuit(stacks bool, dump func()) (stop func()) { return func() {} }
