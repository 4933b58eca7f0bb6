package wire

import "testing"

func TestJoinStatus(t *testing.T) { checkJoinMessage(t, JoinStatus{}) }

func FuzzJoinStatus(f *testing.F) { fuzzJoin(f, JoinStatus{}) }
