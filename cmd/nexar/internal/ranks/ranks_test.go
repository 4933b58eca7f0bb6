package ranks

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/cmd/nexar/internal/launch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnvironment(t *testing.T) {
	base := []string{"PATH=/bin", "NEXAR_RANK=9", "NEXAR_WORLD=9", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000", "NEXAR_CLUSTER_TOKEN=outer"}
	w := &world{addr: "127.0.0.1:5000", token: "inner"}
	first := 4
	tests := []struct {
		name  string
		cfg   Config
		world *world
		want  []string
	}{
		{"a whole world", Config{Count: 3}, w, []string{
			"PATH=/bin", "NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_RANK=1", "NEXAR_SEEDS=127.0.0.1:5000", "NEXAR_CLUSTER_TOKEN=inner",
			"NEXAR_WORLD=3", "NEXAR_LISTEN=127.0.0.1:0",
		}},
		{"a part whose ranks the seed chooses", Config{Count: 3, Seeds: "10.0.0.1:7000"}, nil, []string{
			"PATH=/bin", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000", "NEXAR_CLUSTER_TOKEN=outer",
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_SEEDS=10.0.0.1:7000",
		}},
		{"a part with ranks", Config{Count: 3, Seeds: "10.0.0.1:7000", World: 8, First: &first}, nil, []string{
			"PATH=/bin", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000", "NEXAR_CLUSTER_TOKEN=outer",
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_RANK=5", "NEXAR_SEEDS=10.0.0.1:7000", "NEXAR_WORLD=8",
		}},
		{"the user has the last word", Config{Count: 1, Env: []string{"NEXAR_LISTEN=127.0.0.1:7001", "A=b=c", "PATH="}}, w, []string{
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_RANK=1", "NEXAR_SEEDS=127.0.0.1:5000", "NEXAR_CLUSTER_TOKEN=inner",
			"NEXAR_WORLD=1", "NEXAR_LISTEN=127.0.0.1:7001", "A=b=c", "PATH=",
		}},
	}
	for _, test := range tests {
		got := test.cfg.environment(base, 1, test.world)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got\n%q, want\n%q", test.name, got, test.want)
		}
	}
	if base[1] != "NEXAR_RANK=9" || len(base) != 6 {
		t.Errorf("the environment of this process was changed: %q", base)
	}
}

func TestChildren(t *testing.T) {
	first := 6
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := startWorld(t.Context(), Config{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	tests := []struct {
		cfg          Config
		name, prefix string
	}{
		{Config{Count: 2}, "process 1", "[1] "},
		{Config{Count: 2, Seeds: "a:1"}, "process 1", "[" + hostname + ":4711] "},
		{Config{Count: 2, Seeds: "a:1", First: &first}, "rank 7", "[7] "},
		{Config{Count: 2, NoPrefix: true}, "process 1", ""},
	}
	for _, test := range tests {
		test.cfg.Program, test.cfg.Stdout, test.cfg.Stderr = []string{"program"}, &out, &out
		got := test.cfg.children("/bin/program", w)[1]
		if got.Name() != test.name {
			t.Errorf("%+v: got name %q, want %q", test.cfg, got.Name(), test.name)
		}
		for _, prefix := range []func(int) string{got.OutPrefix, got.ErrPrefix} {
			if (prefix == nil) != test.cfg.NoPrefix || prefix != nil && prefix(4711) != test.prefix {
				t.Errorf("%+v: a line does not begin with %q", test.cfg, test.prefix)
			}
		}
	}
}

func TestPaint(t *testing.T) {
	seen := map[string]bool{}
	for i := range 12 {
		text := paint(i, "[x]")
		if !strings.HasPrefix(text, "\x1b[") || !strings.HasSuffix(text, "m") || !strings.Contains(text, "[x]") {
			t.Errorf("paint(%d) = %q, want a color and its end", i, text)
		}
		if seen[text] {
			t.Errorf("paint(%d) = %q, the color of another one", i, text)
		}
		seen[text] = true
	}
	if paint(12, "[x]") != paint(0, "[x]") {
		t.Error("the colors do not begin again after the last")
	}
}

func TestMissingProgram(t *testing.T) {
	err := Run(t.Context(), Config{Program: []string{"no-such-program-anywhere"}, Count: 1})
	if e, ok := err.(*launch.StartError); !ok || e.Code() != 127 {
		t.Errorf("got error %v, want a *StartError with code 127", err)
	}
}

// All methods work for a cluster with its seed elsewhere.
func TestNoWorld(t *testing.T) {
	var w *world
	w.abandon()
	if err := w.endedEarly(0); err != nil {
		t.Errorf("endedEarly: got %v, want nil", err)
	}
	if text := w.missing(); text != "" {
		t.Errorf("missing: got %q, want nothing", text)
	}
}
