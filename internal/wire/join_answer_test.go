package wire

import (
	"bytes"
	"strings"
	"testing"
)

var joinAnswers = []JoinMessage{
	JoinAnswer{Cluster: "c0ffee"},
	JoinAnswer{Proof: bytes.Repeat([]byte{9}, proofBytes), Cluster: "c0ffee"},
}

func TestJoinAnswer(t *testing.T) {
	for _, m := range joinAnswers {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinAnswer{Cluster: strings.Repeat("x", nameBytesMax+1)})
	checkJoinRefused(t, errBadField, JoinAnswer{Proof: []byte("short")})
}

func FuzzJoinAnswer(f *testing.F) { fuzzJoin(f, joinAnswers...) }
