//go:build unix

package input

import (
	"os"
	"syscall"
)

// readOnly opens a pipe without a writer at once.
const readOnly = os.O_RDONLY | syscall.O_NONBLOCK
