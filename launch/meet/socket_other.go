//go:build !linux

package meet

import (
	"context"
	"errors"
)

// hasSockets reports whether processes of one host can exchange values over a socket.
const hasSockets = false

func (process) serve(int, func() []byte, func() bool) (stop func(), err error) {
	return nil, errors.ErrUnsupported
}

func (process) ask(context.Context, int) (string, error) { return "", errors.ErrUnsupported }
