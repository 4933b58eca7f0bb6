package engine

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// TestIsLeave: a leave ends a communicator on the rank that notices it, and on those that it tells.
func TestIsLeave(t *testing.T) {
	for cause, want := range map[error]bool{
		&PeerError{Left: true}:                                    true,
		&PeerError{Err: errors.New("silent")}:                     false,
		&RevokedError{Cause: wire.CauseFailed, Text: "has left"}:  false,
		&RevokedError{Cause: wire.CauseLeft, Text: "x failed: y"}: true,
		&RevokedError{Cause: wire.CauseClosed}:                    true,
		&RevokedError{Cause: wire.CauseTimeout}:                   false,
	} {
		if got := IsLeave(cause); got != want {
			t.Errorf("IsLeave of %v is %v, want %v", cause, got, want)
		}
	}
}
