package ranks

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/launch"
	"github.com/nexar-go/nexar/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnvironment(t *testing.T) {
	base := []string{"PATH=/bin", "NEXAR_RANK=9", "NEXAR_WORLD=9", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000", "NEXAR_CLUSTER_TOKEN=outer"}
	w := &world{addr: "127.0.0.1:5000"}
	inner := &tokenFile{path: "/proc/1/fd/5"}
	first := 4
	tests := []struct {
		name  string
		cfg   Config
		world *world
		want  []string
	}{
		{"a whole world", Config{Count: 3, Token: "inner", tokenFile: inner}, w, []string{
			"PATH=/bin", "NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_RANK=1", "NEXAR_SEEDS=127.0.0.1:5000",
			"NEXAR_WORLD=3", "NEXAR_LISTEN=127.0.0.1:0", "_NEXAR_RUN=127.0.0.1:5000", "NEXAR_CLUSTER_TOKEN_FILE=/proc/1/fd/5",
		}},
		{"a part whose ranks the seed chooses", Config{Count: 3, Seeds: "10.0.0.1:7000"}, nil, []string{
			"PATH=/bin", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000", "NEXAR_CLUSTER_TOKEN=outer",
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_SEEDS=10.0.0.1:7000", "_NEXAR_RUN=10.0.0.1:7000",
		}},
		{"a part without a place for the file", Config{Count: 3, Seeds: "10.0.0.1:7000", Token: "outer"}, nil, []string{
			"PATH=/bin", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000",
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_SEEDS=10.0.0.1:7000", "_NEXAR_RUN=10.0.0.1:7000", "NEXAR_CLUSTER_TOKEN=outer",
		}},
		{"a token of the user", Config{Count: 3, Seeds: "10.0.0.1:7000", Token: "outer", tokenFile: inner, Env: []string{"NEXAR_CLUSTER_TOKEN=user"}}, nil, []string{
			"PATH=/bin", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000",
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_SEEDS=10.0.0.1:7000", "_NEXAR_RUN=10.0.0.1:7000", "NEXAR_CLUSTER_TOKEN=user",
		}},
		{"a part with ranks", Config{Count: 3, Seeds: "10.0.0.1:7000", World: 8, First: &first}, nil, []string{
			"PATH=/bin", "NEXAR_ADVERTISE=10.0.0.9", "NEXAR_LISTEN=:7000", "NEXAR_CLUSTER_TOKEN=outer",
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_RANK=5", "NEXAR_SEEDS=10.0.0.1:7000", "NEXAR_WORLD=8", "_NEXAR_RUN=10.0.0.1:7000",
		}},
		{"the user has the last word", Config{Count: 1, Token: "inner", tokenFile: inner, Env: []string{"NEXAR_LISTEN=127.0.0.1:7001", "A=b=c", "PATH="}}, w, []string{
			"NEXAR_LOCAL_RANK=1", "NEXAR_DUMP_ON_QUIT=1", "NEXAR_RANK=1", "NEXAR_SEEDS=127.0.0.1:5000",
			"NEXAR_WORLD=1", "_NEXAR_RUN=127.0.0.1:5000", "NEXAR_CLUSTER_TOKEN_FILE=/proc/1/fd/5", "NEXAR_LISTEN=127.0.0.1:7001", "A=b=c", "PATH=",
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
		got := test.cfg.children("/bin/program", w, nil)[1]
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

// A process is named by the rank that it has written last, and before that by its own name.
func TestReports(t *testing.T) {
	r, err := newReports(2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	t.Setenv(rankFileVariable, "of another nexar run")
	var out bytes.Buffer
	cfg := Config{Count: 2, Seeds: "a:1", Program: []string{"program"}, Stdout: &out, Stderr: &out}
	if unset := environment(cfg.children("/bin/program", nil, nil)[0].Env); unset.get(rankFileVariable) != "" {
		t.Errorf("without files, the variable is %q, want none", unset.get(rankFileVariable))
	}
	child := cfg.children("/bin/program", nil, r)[1]
	path := environment(child.Env).get(rankFileVariable)
	before := child.OutPrefix(4711)
	if !strings.HasSuffix(before, ":4711] ") || child.Name() != "process 1" {
		t.Errorf("a process without a rank has the prefix %q and the name %q", before, child.Name())
	}
	for _, test := range []struct{ content, prefix, name string }{
		{"          5\n", "[5] ", "rank 5"},
		{"          0\n", "[0] ", "rank 0"},
		{"         -1\n", before, "process 1"},
		{"123", before, "process 1"},
		{unknownRank, before, "process 1"},
	} {
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err, name := child.OutPrefix(4711), child.ErrPrefix(4711), child.Name(); out != test.prefix || err != out || name != test.name {
			t.Errorf("content %q: prefixes %q and %q, name %q, want %q and %q", test.content, out, err, name, test.prefix, test.name)
		}
	}
	r.close()
	if _, err := os.Stat(r.dir); !os.IsNotExist(err) {
		t.Errorf("the directory of the files is left: %v", err)
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

// TestCause: an error names the node of a process of this run, or one that another run has added to the world later.
func TestCause(t *testing.T) {
	w := &world{size: 2}
	nodes := []nexar.NodeID{{1}, {2}, {3}}
	for i, e := range []nexar.SeedEvent{{Rank: 1, Joined: 1}, {Rank: 0, Joined: 2}, {Rank: 1, Joined: 3}} {
		e.Node = nodes[i]
		w.note(e)
	}
	for i, want := range []int{1, 0, -1} {
		process, ok := w.cause(fmt.Sprintf("nexar: barrier: rank 1 (node %v at 127.0.0.1:1) has left", nodes[i]))
		if !ok {
			process = -1
		}
		if process != want {
			t.Errorf("node %d is process %d, want %d", i, process, want)
		}
	}
}

// TestForming: while processes wait for others, nexar run says which are missing. They themselves do not.
func TestForming(t *testing.T) {
	var out, logs testlog.Buffer
	w, err := startWorld(t.Context(), Config{Count: 3, Title: "nexar run", Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var nodes sync.WaitGroup
	join := func(rank int) {
		nodes.Go(func() {
			log := slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn}))
			node, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{w.addr}, Token: w.token, Rank: &rank, Listen: "127.0.0.1:0", Log: log})
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			node.Close()
		})
	}
	join(0)
	join(2)
	want := "nexar run: The world forms: 2 of 3 have joined; rank 1 is missing (for "
	for end := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("nexar run says\n%s, want %q", out.String(), want)
			break
		}
	}
	join(1)
	nodes.Wait()
	if text := logs.String(); strings.Contains(text, "forming") {
		t.Errorf("the ranks log\n%s", text)
	}
}
