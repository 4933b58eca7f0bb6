//go:build !linux

package meet

import (
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

func needSockets(t *testing.T) {
	require.Have(t, "linux", false, "processes of one host exchange values on Linux only")
}
