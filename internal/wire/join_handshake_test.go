package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
)

var joinHellos = []JoinMessage{
	JoinHello{Version: Version},
	JoinHello{Version: Version, Proof: bytes.Repeat([]byte{7}, proofBytes)},
}

func TestJoinHello(t *testing.T) {
	for _, m := range joinHellos {
		checkJoinMessage(t, m)
		if n := len(encodeJoin(t, m)); n > joinHeaderLen+HelloBytesMax {
			t.Errorf("%d bytes, a seed reads at most %d", n, HelloBytesMax)
		}
	}
	checkJoinRefused(t, errValue, JoinHello{Version: Version, Proof: []byte{1}})
	checkJoinRefused(t, errTooLong, JoinHello{Version: Version, Proof: make([]byte, proofBytes+1)})
}

// The version of a JoinHello is decoded with any bytes after it.
func TestJoinHelloOfAnotherVersion(t *testing.T) {
	for _, rest := range []string{"", "\x00\x00", "something that this version does not know"} {
		fields := append([]byte{0, Version + 1}, rest...)
		b := append([]byte{joinType(JoinHello{}), 0, 0, 0, byte(len(fields))}, fields...)
		_, err := ReadJoin(bytes.NewReader(b), HelloBytesMax)
		v, ok := errors.AsType[*VersionError](err)
		if !ok || v.Theirs != Version+1 || v.Ours != Version || !strings.Contains(err.Error(), fmt.Sprintf("version %d", Version+1)) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", Version)) {
			t.Errorf("error %v, want one that names both versions", err)
		}
	}
}

func FuzzJoinHello(f *testing.F) { fuzzJoin(f, joinHellos...) }

var joinAnswers = []JoinMessage{
	JoinAnswer{Cluster: "c0ffee"},
	JoinAnswer{Proof: bytes.Repeat([]byte{9}, proofBytes), Cluster: "c0ffee"},
}

func TestJoinAnswer(t *testing.T) {
	for _, m := range joinAnswers {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinAnswer{Cluster: strings.Repeat("x", nameBytesMax+1)})
	checkJoinRefused(t, errValue, JoinAnswer{Proof: []byte("short")})
}

func FuzzJoinAnswer(f *testing.F) { fuzzJoin(f, joinAnswers...) }

var joinRefusals = []JoinMessage{
	JoinRefusal{Code: RefusedToken, Text: "wrong cluster token"},
	JoinRefusal{Code: 60000},
}

func TestJoinRefusal(t *testing.T) {
	for _, m := range joinRefusals {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinRefusal(f *testing.F) { fuzzJoin(f, joinRefusals...) }

var joinRedirects = []JoinMessage{JoinRedirect{}, JoinRedirect{Leader: "seed.example:7000"}}

func TestJoinRedirect(t *testing.T) {
	for _, m := range joinRedirects {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinRedirect{Leader: strings.Repeat("a", addrBytesMax+1)})
	checkJoinRefused(t, errNotText, JoinRedirect{Leader: "\x1b[2J"})
}

func FuzzJoinRedirect(f *testing.F) { fuzzJoin(f, joinRedirects...) }

var joinRequests = []JoinMessage{
	JoinRequest{CSR: []byte{0x30, 0}, Rank: AnyRank},
	JoinRequest{
		CSR:        []byte{0x30, 1, 2, 3},
		Advertised: []string{"node1.example:7000"},
		Alternates: []string{"10.0.0.1:7000", "[fd00::1]:7000"},
		Port:       7000, Host: "host", Name: "host:4711", Rank: 3, Spare: true,
		Rejoin: true, Epoch: 1 << 40, Endpoints: []membership.Endpoint{{Transport: "tcp"}, {Transport: "unix", Addr: "@x"}}, CheckAddress: true, Trial: true, Topology: "k-regular:4", Process: "pid:[1]/4711", Size: 8, Place: "3/train-3.nexar.ml.svc",
	},
}

func TestJoinRequest(t *testing.T) {
	for _, m := range joinRequests {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong,
		JoinRequest{CSR: make([]byte, certificateBytesMax+1)},
		JoinRequest{Name: strings.Repeat("n", nameBytesMax+1)},
		JoinRequest{Topology: strings.Repeat("n", nameBytesMax+1)},
		JoinRequest{Alternates: []string{strings.Repeat("a", addrBytesMax+1)}},
		JoinRequest{Advertised: slices.Repeat([]string{"a:1"}, addrsMax+1)},
	)
	checkJoinRefused(t, errValue, JoinRequest{Rank: -2})
	checkJoinRefused(t, errNotText, JoinRequest{Host: "\x1b[2J"}, JoinRequest{Alternates: []string{"\n"}})
}

func FuzzJoinRequest(f *testing.F) { fuzzJoin(f, joinRequests...) }

var joinAdmitteds = []JoinMessage{
	JoinAdmitted{Certificate: []byte{1}, CA: []byte{2, 3}, ID: id16(4), Observed: "10.0.0.1:7000", World: 64, Durable: true, Seeds: []string{"10.0.0.1:7000", "seed.example:7000"}},
	JoinAdmitted{Certificate: make([]byte, 600), CA: make([]byte, 500), World: 1},
}

func TestJoinAdmitted(t *testing.T) {
	for _, m := range joinAdmitteds {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinAdmitted{Certificate: make([]byte, certificateBytesMax+1)},
		JoinAdmitted{CA: make([]byte, certificateBytesMax+1)})
}

func FuzzJoinAdmitted(f *testing.F) { fuzzJoin(f, joinAdmitteds...) }

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

var joinSeedHellos = []JoinMessage{JoinSeedHello{Seed: 1}, JoinSeedHello{Seed: 1 << 62, World: 4, Proof: make([]byte, proofBytes)}}

func TestJoinSeedHello(t *testing.T) {
	for _, m := range joinSeedHellos {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errValue, JoinSeedHello{Proof: make([]byte, proofBytes-1)})
}

func FuzzJoinSeedHello(f *testing.F) { fuzzJoin(f, joinSeedHellos...) }

var joinLogs = []JoinMessage{
	JoinLog{Data: []byte{}},
	JoinLog{More: true, Data: []byte{8, 3, 16, 1}},
	JoinLog{Data: make([]byte, LogBytesMax)},
}

func TestJoinLog(t *testing.T) {
	for _, m := range joinLogs[:2] {
		checkJoinMessage(t, m)
	}
	checkLongest(t, joinLogs[2])
	checkJoinRefused(t, errTooLong, JoinLog{Data: make([]byte, LogBytesMax+1)})
}

func FuzzJoinLog(f *testing.F) { fuzzJoin(f, joinLogs...) }
