//go:build !unix

package campaign

import "os/exec"

// endAsSession does nothing: this platform has no process groups, so only the process itself is
// killed when its context ends.
func endAsSession(*exec.Cmd) (stop func()) { return func() {} }
