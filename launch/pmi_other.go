//go:build !linux && !darwin && !freebsd

package launch

import (
	"fmt"
	"os"
	"runtime"
)

func inherited(int) (*os.File, error) {
	return nil, fmt.Errorf("PMI is not supported on %s", runtime.GOOS)
}
