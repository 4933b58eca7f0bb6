package doctor

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// find returns the first finding that contains a text.
func find(t *testing.T, list []Finding, text string) Finding {
	t.Helper()
	i := slices.IndexFunc(list, func(f Finding) bool { return strings.Contains(f.Text, text) })
	if i < 0 {
		t.Fatalf("no finding has the text %q: %+v", text, list)
	}
	return list[i]
}

func TestEnvironment(t *testing.T) {
	file := func(name, token string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	short, long, bad := file("short", "open-sesame"), file("long", nexar.NewToken()), file("bad", "open sesame")
	tests := []struct {
		pair   string
		status Status
		text   string
		fix    string
	}{
		{"NEXAR_SEEDS=10.0.0.1:7000,10.0.0.2:7000", OK, "NEXAR_SEEDS=10.0.0.1:7000,10.0.0.2:7000", ""},
		{"NEXAR_RANK=3", OK, "NEXAR_RANK=3", ""},
		{"NEXAR_WORLD=4", OK, "NEXAR_WORLD=4", ""},
		{"NEXAR_RANK=three", Fail, `NEXAR_RANK="three"`, "correct it"},
		{"NEXAR_RANK=-1", Fail, "NEXAR_RANK=-1: ", "correct it"},
		{"NEXAR_LISTEN=7000", Fail, `NEXAR_LISTEN="7000": must be an address`, "correct it"},
		{"NEXAR_LOG=loud", Fail, `NEXAR_LOG="loud": not one of debug`, "correct it"},
		{"NEXAR_BARRIER_TIMEOUT_SECS=soon", Fail, `NEXAR_BARRIER_TIMEOUT_SECS="soon"`, "correct it"},
		{"NEXAR_CLUSTER_TOKEN=open sesame", Fail, "NEXAR_CLUSTER_TOKEN: ", "correct it"},
		{"NEXAR_CLUSTER_TOKEN=open-sesame", Fail, "NEXAR_CLUSTER_TOKEN: the token is not one that", "correct it"},
		{"NEXAR_CLUSTER_TOKEN=abc", Fail, "NEXAR_CLUSTER_TOKEN: the token is not one that", "correct it"},
		{"NEXAR_CLUSTER_TOKEN=" + nexar.NewToken(), OK, "NEXAR_CLUSTER_TOKEN is set, to ", ""},
		{"NEXAR_CLUSTER_TOKEN_FILE=" + short, Fail, "the token is not one that", "correct it"},
		{"NEXAR_CLUSTER_TOKEN_FILE=" + long, OK, long + " has a token of ", ""},
		{"NEXAR_CLUSTER_TOKEN_FILE=" + bad, Fail, "NEXAR_CLUSTER_TOKEN_FILE: ", "correct it"},
		{"NEXAR_CLUSTER_TOKEN_FILE=" + short + ".none", Fail, "NEXAR_CLUSTER_TOKEN_FILE: ", "correct it"},
		{"NEXAR_TOPOLOGY=ring", Fail, `NEXAR_TOPOLOGY="ring": not one of full, k-regular:K, hypercube`, "correct it"},
		{"NEXAR_ENCRYPT_BULK_TRANSPORT=perhaps", Fail, `NEXAR_ENCRYPT_BULK_TRANSPORT="perhaps": neither 0 nor 1`, "correct it"},
		{"NEXAR_TOKEN=x", Warn, "unknown variable NEXAR_TOKEN", "did you mean NEXAR_CLUSTER_TOKEN"},
		{"NEXAR_SEED=10.0.0.1:7000", Warn, "unknown variable NEXAR_SEED", "did you mean NEXAR_SEEDS?"},
		{"NEXAR_COLECTIVE_TIMEOUT_SEC=1", Warn, "unknown variable", "did you mean NEXAR_COLLECTIVE_TIMEOUT_SECS?"},
		{"NEXAR_SPARE=\x1b[31m", Fail, `NEXAR_SPARE="\x1b[31m"`, "correct it"},
		{"NEXAR_LISTEN=\x1b[31m:1", Fail, `NEXAR_LISTEN="\x1b[31m:1": must be an address`, "correct it"},
		{"NEXAR_LOCAL_RANK=\x1b[31m\n\xff", OK, `NEXAR_LOCAL_RANK="\x1b[31m\n\xff"`, ""},
		{"NEXAR_\x1b[31m=x", Warn, `unknown variable NEXAR_\x1b[31m`, "nobody reads it"},
		{"NEXAR_RANK=", OK, "no NEXAR_ variable is set", ""},
		{"OTHER=1", OK, "no NEXAR_ variable is set", ""},
	}
	t.Setenv("NEXAR_RANK", "1")
	t.Setenv("NEXAR_LOG", "warn")
	before := nexarNames(os.Environ())
	for _, test := range tests {
		list := examineEnvironment([]string{"PATH=/bin", test.pair})
		if len(list) != 1 {
			t.Errorf("%s: got findings %+v, want one", test.pair, list)
		}
		f := find(t, list, test.text)
		if f.Status != test.status || !strings.Contains(f.Fix, test.fix) {
			t.Errorf("%s: got finding %+v, want status %q and fix %q", test.pair, f, test.status, test.fix)
		}
		if strings.Contains(f.Text, "sesame") {
			t.Errorf("%s: the finding %q shows the token", test.pair, f.Text)
		}
	}
	if got := nexarNames(os.Environ()); !slices.Equal(got, before) || os.Getenv("NEXAR_RANK") != "1" {
		t.Errorf("the environment of the process was changed: it has %q", got)
	}
}

func TestVariablesThatContradictEachOther(t *testing.T) {
	list := examineEnvironment([]string{"NEXAR_HEARTBEAT_INTERVAL_SECS=9", "NEXAR_HEARTBEAT_TIMEOUT_SECS=3"})
	if f := find(t, list, "not more than NEXAR_HEARTBEAT_INTERVAL_SECS"); f.Status != Fail {
		t.Errorf("got %+v, want a failure", f)
	}
	list = examineEnvironment([]string{"NEXAR_PLAIN_BULK=1", "NEXAR_ENCRYPT_BULK_TRANSPORT=1"})
	if f := find(t, list, "contradicts"); f.Status != Fail {
		t.Errorf("got %+v, want a failure", f)
	}
}

func TestExamine(t *testing.T) {
	t.Setenv("NEXAR_RANK", "first")
	list := Examine(t.Context(), nil, 2, 4, "")
	if f := find(t, list, "NEXAR_RANK"); f.Status != Fail {
		t.Errorf("got %+v, want a failure", f)
	}
	if Healthy(list) {
		t.Error("Healthy with a malformed variable: got true, want false")
	}
	// A malformed variable does not prevent the other checks.
	for _, want := range []string{"a UDP socket can be opened", "transports: ", "open files: a rank needs ", "/dev/shm", "two ranks formed a cluster", "barrier", "all_reduce of 1 MiB"} {
		if f := find(t, list, want); f.Status != OK {
			t.Errorf("got %+v, want status ok", f)
		}
	}
}

// TestJoining checks that findings about seeds agree with the result of Join.
func TestJoining(t *testing.T) {
	for _, name := range nexarNames(os.Environ()) {
		t.Setenv(name, "")
	}
	t.Setenv("NEXAR_LISTEN", "127.0.0.1:0")
	token := nexar.NewToken()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	none := "127.0.0.1:1"
	for _, test := range []struct {
		name, token, advertise string
		seeds                  []string
		healthy                bool
		want                   map[string]Status
	}{
		{"all is well", token, "", []string{seed.Addr()}, true, map[string]Status{
			"answers over UDP": OK, "answers over TCP": OK, "Join would be admitted: 0 of 2 nodes have joined": OK}},
		{"one of two seeds", token, "", []string{none, seed.Addr()}, true, map[string]Status{
			none + " does not answer over UDP": Warn, none + " does not answer over TCP": Warn, "Join would be admitted": OK}},
		{"no seed", token, "", []string{none}, false, map[string]Status{"Join would fail: nexar: join: no seed could be reached": Fail}},
		{"another token", nexar.NewToken(), "", []string{seed.Addr()}, false, map[string]Status{"wrong cluster token": Fail, "Join would fail": Fail}},
		{"a weak token", "abc", "", []string{"192.0.2.1:1"}, false, map[string]Status{"Join would fail: nexar: join: invalid configuration: NEXAR_CLUSTER_TOKEN": Fail}},
		{"a wrong address", token, none, []string{seed.Addr()}, false, map[string]Status{"advertised address " + none: Fail}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("NEXAR_CLUSTER_TOKEN", test.token)
			t.Setenv("NEXAR_ADVERTISE", test.advertise)
			list := examineJoin(t.Context(), test.seeds)
			for text, status := range test.want {
				if f := find(t, list, text); f.Status != status || (f.Fix == "") != (status == OK) {
					t.Errorf("got %+v, want status %q", f, status)
				}
			}
			if Healthy(list) != test.healthy {
				t.Errorf("healthy: %v, want %v: %+v", Healthy(list), test.healthy, list)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	t.Setenv("NEXAR_LISTEN", taken.LocalAddr().String())
	list := examineMachine()
	if f := find(t, list, "no UDP socket"); f.Status != Fail || f.Fix == "" {
		t.Errorf("got %+v, want a failure with a fix", f)
	}
}

func TestSelfTestThatCannotForm(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	list := selfTest(ctx, acrossHosts())
	if f := find(t, list, "cannot form a cluster of two ranks"); f.Status != Fail || f.Fix == "" {
		t.Errorf("got %+v, want a failure with a fix", f)
	}
}

// TestLockedMemory: no finding denies that links lock memory if hardware has such links.
func TestLockedMemory(t *testing.T) {
	for locks, want := range map[string]string{
		"":                                "no rank locks memory (memlock); shared memory is anonymous",
		"a link over X locks about 3 MiB": "locked memory (memlock): a link over X locks about 3 MiB, and other links lock none; shared memory is anonymous",
	} {
		if f := find(t, examineResources(2, 4, locks), "memlock"); f.Status != OK || !strings.HasPrefix(f.Text, want) {
			t.Errorf("with %q: %+v, want %q", locks, f, want)
		}
	}
}
