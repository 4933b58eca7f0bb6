package wire

import (
	"slices"
	"strings"
	"testing"
)

var joinRequests = []JoinMessage{
	JoinRequest{CSR: []byte{0x30, 0}, Rank: AnyRank},
	JoinRequest{
		CSR:        []byte{0x30, 1, 2, 3},
		Advertised: []string{"node1.example:7000"},
		Extra:      []string{"10.0.0.1:7000", "[fd00::1]:7000"},
		Port:       7000, Host: "host", Name: "host:4711", Rank: 3, Spare: true,
		Again: true, Epoch: 1 << 40,
	},
}

func TestJoinRequest(t *testing.T) {
	for _, m := range joinRequests {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong,
		JoinRequest{CSR: make([]byte, certificateBytesMax+1)},
		JoinRequest{Name: strings.Repeat("n", nameBytesMax+1)},
		JoinRequest{Extra: []string{strings.Repeat("a", addrBytesMax+1)}},
		JoinRequest{Advertised: slices.Repeat([]string{"a:1"}, addrsMax+1)},
	)
	checkJoinRefused(t, errBadField, JoinRequest{Rank: -2})
	checkJoinRefused(t, errNotText, JoinRequest{Host: "\x1b[2J"}, JoinRequest{Extra: []string{"\n"}})
}

func FuzzJoinRequest(f *testing.F) { fuzzJoin(f, joinRequests...) }
