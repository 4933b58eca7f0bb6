package wire

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
)

var joinViews = []JoinMessage{
	JoinView{Epoch: 1},
	JoinView{Epoch: 1 << 40, Nodes: []membership.Node{
		{
			ID: id16(1), Addrs: []string{"10.0.0.1:7000", "[::1]:7000"}, Host: "a", Name: "a:1",
			Endpoints: []membership.Endpoint{{Transport: "quic"}, {Transport: "unix", Addr: "/run/nexar/1"}},
		},
		{ID: id16(2)},
	}},
}

func TestJoinView(t *testing.T) {
	for _, m := range joinViews {
		checkJoinMessage(t, m)
	}
	node := membership.Node{Addrs: slices.Repeat([]string{strings.Repeat("a", addrBytesMax)}, addrsMax)}
	checkJoinRefused(t, errTooLong, JoinView{Nodes: slices.Repeat([]membership.Node{node}, 300)},
		JoinView{Nodes: []membership.Node{{Endpoints: make([]membership.Endpoint, endpointsMax+1)}}},
		JoinView{Nodes: []membership.Node{{Endpoints: []membership.Endpoint{{Transport: strings.Repeat("t", transportBytesMax+1)}}}}})
}

// A view of a thousand typical nodes fits.
func TestJoinViewOfAThousand(t *testing.T) {
	node := membership.Node{Addrs: []string{"192.168.100.200:65535", "10.100.200.250:65535"}, Host: "0123456789abcdef0123456789abcdef", Name: "a-longish-hostname-of-a-container:1234567",
		Endpoints: []membership.Endpoint{{Transport: "shm"}, {Transport: "tcp"}, {Transport: "quic"}}}
	if n := len(encodeJoin(t, JoinView{Epoch: 1, Nodes: slices.Repeat([]membership.Node{node}, 1000)})); n > JoinBytesMax/4 {
		t.Errorf("%d bytes, want a quarter of the limit at most", n)
	}
}

// The decoder checks the number of nodes before it allocates.
func TestJoinViewDoesNotTrustItsCount(t *testing.T) {
	fields := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}
	if _, err := parseJoin(joinType(JoinView{}), fields); !errors.Is(err, errShort) {
		t.Errorf("error %v, want %v", err, errShort)
	}
	if n := testing.AllocsPerRun(10, func() { parseJoin(joinType(JoinView{}), fields) }); n > 10 {
		t.Errorf("%v allocations to refuse a count", n)
	}
}

func FuzzJoinView(f *testing.F) { fuzzJoin(f, joinViews...) }

var joinProgresses = []JoinMessage{
	JoinProgress{Joined: 3, World: 4, Waited: 3000},
	JoinProgress{Joined: 2, World: 4, Candidates: []membership.Candidate{{ID: id16(1), Rank: 3, Name: "a:1", Addr: "10.0.0.1:7000"}, {ID: id16(2), Rank: AnyRank}}},
	JoinProgress{},
}

func TestJoinProgress(t *testing.T) {
	for _, m := range joinProgresses {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinProgress{Candidates: make([]membership.Candidate, membership.CandidatesMax+1)})
	checkJoinRefused(t, errValue, JoinProgress{Candidates: []membership.Candidate{{Rank: -2}}})
	checkJoinRefused(t, errNotText, JoinProgress{Candidates: []membership.Candidate{{Name: "\n"}}})
}

func FuzzJoinProgress(f *testing.F) { fuzzJoin(f, joinProgresses...) }

var joinReadies = []JoinMessage{JoinReady{Epoch: 1}, JoinReady{Epoch: 1 << 63}}

func TestJoinReady(t *testing.T) {
	for _, m := range joinReadies {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinReady(f *testing.F) { fuzzJoin(f, joinReadies...) }

var joinUnreachables = []JoinMessage{
	JoinUnreachable{Epoch: 1, Peer: id16(3), Text: "no answer from 10.0.0.1:7000"},
	JoinUnreachable{Epoch: 2, Peer: id16(4), Kind: LossLeft, Text: "it has left"},
	JoinUnreachable{},
}

func TestJoinUnreachable(t *testing.T) {
	for _, m := range joinUnreachables {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinUnreachable(f *testing.F) { fuzzJoin(f, joinUnreachables...) }

var joinFormeds = []JoinMessage{JoinFormed{Epoch: 1}, JoinFormed{}}

func TestJoinFormed(t *testing.T) {
	for _, m := range joinFormeds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinFormed(f *testing.F) { fuzzJoin(f, joinFormeds...) }

var joinFaileds = []JoinMessage{
	JoinFailed{Text: "rank 1 10.0.0.2:7000 (b:2) cannot reach rank 0 10.0.0.1:7000 (a:1)"},
	JoinFailed{Text: "1 of 2 nodes joined", Joined: 1, World: 2, Candidates: []membership.Candidate{{ID: id16(1), Rank: AnyRank, Name: "a:1", Addr: "10.0.0.1:7000"}}},
	JoinFailed{},
}

func TestJoinFailed(t *testing.T) {
	for _, m := range joinFaileds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinFailed(f *testing.F) { fuzzJoin(f, joinFaileds...) }

func TestJoinLeave(t *testing.T) { checkJoinMessage(t, JoinLeave{}) }

func FuzzJoinLeave(f *testing.F) { fuzzJoin(f, JoinLeave{}) }

var joinPings = []JoinMessage{JoinPing{Seq: 1, Epoch: 1 << 40}, JoinPing{Seq: 1<<64 - 1}}

func TestJoinPing(t *testing.T) {
	for _, m := range joinPings {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinPing(f *testing.F) { fuzzJoin(f, joinPings...) }

var joinInvites = []JoinMessage{
	JoinInvite{Number: 1, Epoch: 1},
	JoinInvite{Number: 1 << 40, Epoch: 7, World: 1, Nodes: []membership.Node{{ID: id16(1), Addrs: []string{"10.0.0.1:7000"}, Host: "a", Name: "a:1"}, {ID: id16(2)}}},
}

func TestJoinInvite(t *testing.T) {
	for _, m := range joinInvites {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errNotText, JoinInvite{Nodes: []membership.Node{{Host: "\n"}}})
}

func FuzzJoinInvite(f *testing.F) { fuzzJoin(f, joinInvites...) }

var joinExpects = []JoinMessage{
	JoinExpect{},
	JoinExpect{Nodes: []membership.Node{{ID: id16(1), Addrs: []string{"10.0.0.1:7000"}, Host: "a", Name: "a:1"}}, Complete: true},
}

func TestJoinExpect(t *testing.T) {
	for _, m := range joinExpects {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinExpect(f *testing.F) { fuzzJoin(f, joinExpects...) }

var joinForgets = []JoinMessage{JoinForget{Peer: id16(1)}}

func TestJoinForget(t *testing.T) {
	for _, m := range joinForgets {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinForget(f *testing.F) { fuzzJoin(f, joinForgets...) }

var joinLinkeds = []JoinMessage{JoinLinked{Number: 1}, JoinLinked{Number: 1 << 63}}

func TestJoinLinked(t *testing.T) {
	for _, m := range joinLinkeds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinLinked(f *testing.F) { fuzzJoin(f, joinLinkeds...) }

var joinLinks = []JoinMessage{JoinLink{Peer: id16(1), Up: true}, JoinLink{Peer: id16(200)}}

func TestJoinLink(t *testing.T) {
	for _, m := range joinLinks {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinLink(f *testing.F) { fuzzJoin(f, joinLinks...) }

var joinQuiesces = []JoinMessage{JoinQuiesce{Epoch: 1}, JoinQuiesce{Epoch: 1 << 63}}

func TestJoinQuiesce(t *testing.T) {
	for _, m := range joinQuiesces {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinQuiesce(f *testing.F) { fuzzJoin(f, joinQuiesces...) }

var joinQuiesceds = []JoinMessage{JoinQuiesced{Epoch: 1}, JoinQuiesced{Epoch: 1 << 63, Leaves: true, Timeout: 60_000}}

func TestJoinQuiesced(t *testing.T) {
	for _, m := range joinQuiesceds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinQuiesced(f *testing.F) { fuzzJoin(f, joinQuiesceds...) }

var joinExcludes = []JoinMessage{JoinExclude{Epoch: 7, Peer: id16(1)}, JoinExclude{}}

func TestJoinExclude(t *testing.T) {
	for _, m := range joinExcludes {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinExclude(f *testing.F) { fuzzJoin(f, joinExcludes...) }

var joinExcludeds = []JoinMessage{JoinExcluded{Text: "rank 1 has excluded it"}, JoinExcluded{}}

func TestJoinExcluded(t *testing.T) {
	for _, m := range joinExcludeds {
		checkJoinMessage(t, m)
	}
}

func FuzzJoinExcluded(f *testing.F) { fuzzJoin(f, joinExcludeds...) }

// TestNodesShareFields: nodes with equal hosts and endpoints one after the other share them, and others have their own.
func TestNodesShareFields(t *testing.T) {
	local, remote := []membership.Endpoint{{Transport: "shm"}, {Transport: "tcp", Addr: ":7"}}, []membership.Endpoint{{Transport: "tcp", Addr: ":7"}}
	m := JoinView{Epoch: 1, Nodes: []membership.Node{
		{ID: id16(1), Addrs: []string{"a:1"}, Host: "one", Name: "one:1", Endpoints: local},
		{ID: id16(2), Addrs: []string{"a:2"}, Host: "one", Name: "one:2", Endpoints: local},
		{ID: id16(3), Addrs: []string{"b:1"}, Host: "two", Name: "two:3", Endpoints: remote},
		{ID: id16(4), Addrs: []string{"b:2"}, Host: "two"},
		{ID: id16(5), Addrs: []string{"b:3"}, Host: "two"},
		{ID: id16(6), Addrs: []string{"a:3"}, Host: "one", Name: "one:6", Endpoints: local},
	}}
	checkJoinMessage(t, m)
	b := encodeJoin(t, m)
	got, err := ReadJoin(bytes.NewReader(b), JoinBytesMax)
	if err != nil {
		t.Fatal(err)
	}
	if n := got.(JoinView).Nodes; &n[0].Endpoints[0] != &n[1].Endpoints[0] {
		t.Error("nodes with equal endpoints do not share them")
	}
	checkJoinRefused(t, errNotText, JoinView{Epoch: 1, Nodes: []membership.Node{
		{ID: id16(1), Addrs: []string{"a:1"}, Host: "\x7f"},
		{ID: id16(2), Addrs: []string{"a:1"}, Host: "\x7f"},
	}})
}
