package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A room is a package, or all packages below one, and whom of the repository
// it may import.
type room struct {
	dir   string
	may   string // patterns
	tests string // further ones for its tests
	why   string // what is wrong with the others
}

// rooms are in the order of the house, the top floor first: a room may import
// only those below it.
func rooms() []room {
	const (
		user  = "it is a user of the API like any other: what it lacks there, other users lack as well"
		fakes = "transport/mem transport/sim internal/require"
	)
	list := []room{
		{"cmd/...", ". consensus cmd/...", "nexartest internal/require", user},
		{"examples/...", ". compress nexartest examples/...", "nexartest internal/require", user},
		{"bench/...", ". bench/...", "nexartest internal/require", user},
		{"tools/...", "", "", "it looks at all packages and must work while they do not compile"},
		{"consensus", "internal/raftlog internal/rendezvous", ".", "it brings two packages together that do not know each other"},
		{"nexartest", ".", "internal/require", user},
		{".", "internal/comm internal/negotiate internal/node internal/mesh internal/engine internal/link internal/rendezvous internal/pki internal/membership internal/cost internal/shmcoll internal/selector " +
			"internal/trace internal/rpc internal/staging internal/plan internal/p2p internal/wire internal/kernel internal/topo internal/bufpool internal/bucket internal/callback internal/host internal/inspect internal/overlap internal/settings " +
			"transport transport/... device device/host compress", "nexartest device/devicetest internal/require",
			"the root package is the API: it validates, wires and names errors"},
		{"internal/node", "internal/mesh internal/rendezvous internal/pki internal/membership internal/trace internal/host internal/kernel transport transport/...", "", "it brings a node into its cluster and knows no communicators"},
		{"internal/comm", "internal/negotiate internal/selector internal/engine internal/mesh internal/link internal/rendezvous internal/membership internal/cost internal/shmcoll internal/trace internal/rpc internal/plan internal/p2p internal/bufpool internal/callback internal/host", "",
			"it builds communicators, and leaves joining to the node and the names of errors to the root package"},
		{"internal/mesh", "internal/engine internal/link internal/membership internal/trace internal/wire transport",
			fakes + " internal/plan internal/kernel", "it links a node to its view and leaves joining to seed and meaning to the root package"},
		{"internal/negotiate", "internal/selector internal/engine internal/link internal/cost internal/shmcoll internal/plan internal/kernel internal/bufpool transport", "internal/mesh internal/membership transport/mem", "it has ranks agree how a communicator is carried out, and does not know what it is for"},
		{"internal/selector", "internal/engine internal/cost internal/shmcoll internal/plan internal/wire internal/bufpool", "",
			"it says how a collective is carried out, whoever the ranks are and whatever the transport is"},
		{"internal/engine", "internal/link internal/trace internal/shmcoll internal/affinity internal/spin internal/p2p internal/plan internal/wire internal/kernel internal/bufpool transport",
			fakes, "it carries plans out over links, whatever the nodes, the view and the transport are"},
		{"internal/link", "internal/trace internal/wire internal/bufpool transport",
			fakes, "it moves frames to one peer and does not know what they are for"},
		{"internal/inspect", "internal/host transport/quic transport/shm", "", "it looks at a machine, on which there may be no cluster at all"},
		{"internal/bucket", "internal/bufpool", "", "it packs vectors, whatever is then done on them"},
		{"internal/staging", "device", "device/devicetest device/host internal/require",
			"it brings what is on devices to the host and back, whatever it is for"},
		{"internal/rendezvous", "internal/pki internal/membership internal/wire transport",
			fakes + " transport/quic internal/raftlog", "the seed is never on the data path"},
		{"internal/pki", "internal/membership transport",
			fakes + " transport/quic", "whom to trust must not depend on anything but certificates, tokens and identities"},

		{"internal/cost", "internal/plan internal/shmcoll transport", "", "it computes the cost of a plan from numbers it is given"},
		{"transport/transporttest", "transport internal/require", fakes, "it asks of a transport what the contract promises and nothing else"},
		{"transport/...", "transport internal/wire internal/ntstore internal/dl internal/admission", "transport/transporttest transport/... internal/require internal/testpeer",
			"a transport gives pipes and nothing else: whatever is above it is written once, not once for each transport"},
		{"internal/testpeer", "transport", "", "it makes peers for the tests of transports, whichever they are"},
		{"transport", "", "", "it is a contract: " + apart},
		{"device/devicetest", "device", "internal/require", "it asks of a device what the contract promises and nothing else"},
		{"device/...", "device internal/wire internal/dl internal/kernel", "device/devicetest internal/require",
			"a device holds buffers and reduces them: it does not know who is calling"},
		{"device", "", "", "it is a contract: " + apart},
		{"compress", "internal/kernel", "internal/require", "a compressor makes bytes of numbers and knows no ranks"},

		{"internal/shmcoll", "internal/plan internal/affinity internal/ntstore internal/spin", "",
			"it carries plans out in memory that ranks share, whoever has mapped it and whatever the collective is for"},
		{"internal/raftlog", "", "", "it keeps a log alike, whatever that is about and whoever carries its messages"},
		{"internal/rpc", "internal/wire internal/bufpool", "", "it matches calls and answers, whoever carries the messages"},
		{"internal/membership", "", "", "it is a pure state machine: " + apart},
		{"internal/settings/table", "internal/settings", "", "it reads the source of settings and must work while their package does not compile"},
		{"internal/settings", "", "", "it reads settings of any struct and knows none of them"},
		{"internal/trace", "", "internal/require", apart},
		{"internal/affinity", "internal/spin", "", "it knows of others nothing but the processors they run on"},
		{"internal/plan", "", "", "algorithms are pure data: " + apart},
		{"internal/wire", "", "", "bytes on the wire mean the same whoever reads them: " + apart},
		{"internal/kernel/...", "internal/kernel/...", "internal/require", apart},
		{"internal/dl", "", "internal/require", apart},
		{"internal/arch", "", "internal/require", "it looks at all others and must work while they do not compile"},
	}
	for _, name := range []string{"admission", "p2p", "topo", "bufpool", "callback", "host", "overlap", "ntstore", "spin", "require"} {
		list = append(list, room{"internal/" + name, "", "", apart})
	}
	return append(testRooms(), list...)
}

// testRooms are those of tests that are above all other rooms.
func testRooms() []room {
	return []room{
		{"test/attack", "", ". consensus internal/require internal/testhost internal/pki internal/membership internal/rendezvous internal/wire transport transport/quic transport/tcp transport/shm",
			"it attacks clusters from outside: with processes, networks and peers that speak the protocol"},
		{"test/cluster", "", ". consensus internal/require internal/testhost internal/pki internal/wire transport transport/quic transport/tcp",
			"it tests clusters from outside: as users see them, and as strangers do who speak the protocol"},
		{"internal/testhost", "internal/require", "", "it makes networks for tests, whatever runs on them"},
	}
}

const apart = "it stands at the bottom of the house and knows the standard library only, so that everyone can use it"

// roomOf is the room of a package: its own line of the table, or else the
// first pattern that covers it.
func roomOf(dir string) (r room, ok bool) {
	for _, candidate := range rooms() {
		if candidate.dir == dir {
			return candidate, true
		}
		if !ok && covers(candidate.dir, dir) {
			r, ok = candidate, true
		}
	}
	return r, ok
}

// checkRooms finds imports of packages of this repository that the table does
// not allow.
func checkRooms(tr *tree) (problems []string) {
	for _, dir := range tr.dirs() {
		r, ok := roomOf(dir)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s: no room of the table covers it; decide in internal/arch whom it may import, and tell of it in docs/architecture.md", dir))
			continue
		}
		for _, f := range tr.in(dir) {
			problems = append(problems, r.check(f)...)
		}
	}
	return problems
}

func (r room) check(f *file) (problems []string) {
	may := strings.Fields(r.may)
	if f.test {
		may = append(may, strings.Fields(r.tests)...)
	}
	for _, imp := range f.imports {
		dir, ours := ourDir(imp)
		if !ours || f.test && dir == f.dir || coversAny(may, dir) {
			continue
		}
		problems = append(problems, fmt.Sprintf("%s imports %s: %s", f.path, imp, r.why))
	}
	return problems
}

// ourDir is the directory of an import path of this repository.
func ourDir(imp string) (dir string, ours bool) {
	if imp == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module+"/")
}

func TestImports(t *testing.T) { report(t, checkRooms(load(t))) }

func TestImportsFinds(t *testing.T) {
	expect(t, checkRooms(parse(t, map[string]string{
		"internal/plan/a.go":      `package plan; import _ "github.com/nexar-go/nexar/internal/wire"`,
		"internal/plan/b.go":      `package plan; import _ "strings"`,
		"internal/link/a_test.go": `package link; import _ "github.com/nexar-go/nexar/transport/mem"`,
		"internal/link/b.go":      `package link; import _ "github.com/nexar-go/nexar/transport/mem"`,
		"transport/quic/a.go":     `package quic; import _ "github.com/nexar-go/nexar"`,
		"cmd/nexar/a.go":          `package main; import _ "github.com/nexar-go/nexar"`,
		"cmd/nexar/b.go":          `package main; import _ "github.com/nexar-go/nexar/internal/wire"`,
		"internal/util/a.go":      `package util`,
	})),
		"cmd/nexar/b.go imports github.com/nexar-go/nexar/internal/wire: it is a user of the API",
		"internal/link/b.go imports github.com/nexar-go/nexar/transport/mem: it moves frames",
		"internal/plan/a.go imports github.com/nexar-go/nexar/internal/wire: algorithms are pure data",
		"internal/util: no room",
		"transport/quic/a.go imports github.com/nexar-go/nexar: a transport gives pipes",
	)
}

// The table itself must lead down: whatever a room may import stands below it.
func TestRoomsLeadDown(t *testing.T) {
	var seen []string
	for _, r := range rooms() {
		if r.why == "" {
			t.Errorf("%s: no reason is given", r.dir)
		}
		for _, may := range strings.Fields(r.may) {
			if may != r.dir && slices.Contains(seen, may) {
				t.Errorf("%s may import %s, which stands above it", r.dir, may)
			}
		}
		seen = append(seen, r.dir)
	}
}
