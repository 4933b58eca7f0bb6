//go:build !linux

package launch

import (
	"context"
	"errors"
)

// hasSockets reports whether processes of one host can exchange values over a socket.
const hasSockets = false

func (Process) serve(int, []byte, func() bool) (stop func(), err error) {
	return nil, errors.ErrUnsupported
}

func (Process) fetch(context.Context, int) (string, error) { return "", errors.ErrUnsupported }
