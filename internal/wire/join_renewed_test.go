package wire

import "testing"

var joinReneweds = []JoinMessage{
	JoinRenewed{Certificate: []byte{0x30, 1, 2}},
	JoinRenewed{Certificate: make([]byte, certificateBytesMax)},
}

func TestJoinRenewed(t *testing.T) {
	for _, m := range joinReneweds {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinRenewed{Certificate: make([]byte, certificateBytesMax+1)})
}

func FuzzJoinRenewed(f *testing.F) { fuzzJoin(f, joinReneweds...) }
