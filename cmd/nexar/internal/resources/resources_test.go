package resources

import (
	"runtime"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	none := limits{files: unlimited, userThreads: unlimited, pids: unlimited, memory: unlimited}
	threads := 10 * ThreadsOfRank() // of 8 ranks and two processes of nexar run
	for _, test := range []struct {
		name  string
		limit func(*limits)
		level Level
		text  string
	}{
		{"no limits", func(*limits) {}, Enough, "the hard limit is unlimited"},
		{"no limits of threads", func(*limits) {}, Enough, "this user may start any number of others"},
		{"files for ranks and the program", func(l *limits) { l.files = 87 }, Enough, "a rank needs 48 "},
		{"files for ranks", func(l *limits) { l.files = 75 }, Scarce, "open files: a rank needs 48 and some for its own files; the hard limit is 75"},
		{"few files", func(l *limits) { l.files = 47 }, Missing, "open files: a rank needs 48 "},
		{"files for nexar run", func(l *limits) { l.files = 54 }, Missing, "open files: nexar run needs 55 "},
		{"threads", func(l *limits) { l.pids = threads }, Enough, "the cgroup (pids.max) allows"},
		{"threads of the cgroup", func(l *limits) { l.pids = threads - 1 }, Scarce, "the cgroup (pids.max) allows"},
		{"threads of the user", func(l *limits) { l.userThreads = 40 }, Scarce, "this user may start 40 more"},
		{"few threads", func(l *limits) { l.userThreads = 39 }, Missing, "this user may start 39 more"},
		{"memory", func(l *limits) { l.memory = 100 << 20 }, Scarce, "8 ranks, 144 MiB and the vectors; available: 100 MiB"},
	} {
		have := none
		test.limit(&have)
		list := check(World{Local: 8, Size: 8, Transports: []string{"tcp", "quic"}}, have)
		worst := Enough
		var texts []string
		for _, f := range list {
			if f.Level >= worst {
				worst = f.Level
			}
			if (f.Fix == "") != (f.Level == Enough) {
				t.Errorf("%s: level %d with the fix %q", test.name, f.Level, f.Fix)
			}
			if f.Level == test.level {
				texts = append(texts, f.Text)
			}
		}
		if all := strings.Join(texts, "\n"); worst != test.level || !strings.Contains(all, test.text) {
			t.Errorf("%s: level %d: %s\nwant level %d and %q", test.name, worst, all, test.level, test.text)
		}
	}
}

func TestFilesOfRank(t *testing.T) {
	near := uint64(5 * 3)
	if runtime.GOOS == "linux" {
		near = 3 * 3
	}
	for _, test := range []struct {
		transports string
		want       uint64
	}{
		{"", 13 + near + 5*6},
		{"shm,tcp", 13 + near + 5*6},
		{"tcp", 13 + 5*9},
		{"quic", 13 + 9},
		{"unix", 13 + 9},
	} {
		w := World{Local: 4, Size: 10}
		if test.transports != "" {
			w.Transports = strings.Split(test.transports, ",")
		}
		if got := w.FilesOfRank(); got != test.want {
			t.Errorf("NEXAR_TRANSPORTS=%s: got %d files, want %d", test.transports, got, test.want)
		}
	}
}
