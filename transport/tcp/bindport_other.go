//go:build !linux

package tcp

import (
	"context"
	"syscall"
)

// bindLate leaves the choice of the port to the system.
func bindLate(context.Context, string, string, syscall.RawConn) error { return nil }
