//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/nexar-go/nexar/transport"
)

func newEndpoint(Config) (transport.Transport, error) { return nil, selfTest() }

func selfTest() error {
	return fmt.Errorf("shm: shared memory is not supported on %s, only on linux: %w", runtime.GOOS, errors.ErrUnsupported)
}
