package wire

import "testing"

func TestJoinLeave(t *testing.T) { checkJoinMessage(t, JoinLeave{}) }

func FuzzJoinLeave(f *testing.F) { fuzzJoin(f, JoinLeave{}) }
