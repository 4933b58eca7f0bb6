package wire

import "testing"

var joinRenews = []JoinMessage{
	JoinRenew{CSR: []byte{0x30, 1, 2}},
	JoinRenew{CSR: make([]byte, certificateBytesMax)},
}

func TestJoinRenew(t *testing.T) {
	for _, m := range joinRenews {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinRenew{CSR: make([]byte, certificateBytesMax+1)})
}

func FuzzJoinRenew(f *testing.F) { fuzzJoin(f, joinRenews...) }
