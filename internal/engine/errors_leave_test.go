package engine

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// TestIsLeave: a leave ends a communicator on the rank that notices it, and on those that it tells.
func TestIsLeave(t *testing.T) {
	for cause, want := range map[error]bool{
		&PeerError{Rank: 1, Left: true}:                          true,
		&PeerError{Rank: 1, Err: errors.New("silent")}:           false,
		&RevokedError{Rank: 2, Peer: 1, Cause: wire.CauseFailed}: true,
		&RevokedError{Rank: 2, Cause: wire.CauseClosed}:          true,
		&RevokedError{Rank: 2, Peer: 1, Cause: wire.CauseReset}:  false,
		&RevokedError{Rank: 2, Cause: wire.CauseTimeout}:         false,
	} {
		if got := IsLeave(cause); got != want {
			t.Errorf("IsLeave of %v is %v, want %v", cause, got, want)
		}
	}
}
