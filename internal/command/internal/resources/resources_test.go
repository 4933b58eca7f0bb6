//race:none it starts no goroutine

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

// TestOnDemand: with links on demand a rank needs files for its watches and for the peers of collectives, and the text has
// the need of links to all ranks, too. Ranks that share memory are linked in any case.
func TestOnDemand(t *testing.T) {
	const peers = 12 + 3*10 + 2 // of 1000 ranks
	w := NewWorld(4, 1000, "tcp", "demand")
	if got, want := w.FilesOfRank(), uint64(13+5*peers); got != want {
		t.Errorf("%d files of a rank of 1000, want %d", got, want)
	}
	if eager := NewWorld(4, 1000, "tcp", "eager").FilesOfRank(); eager != 13+5*999 {
		t.Errorf("%d files of a rank that is linked to all", eager)
	}
	if w, all := NewWorld(8, 8, "shm,tcp", "demand"), NewWorld(8, 8, "shm,tcp", ""); w.FilesOfRank() != all.FilesOfRank() {
		t.Errorf("%d files of a rank of 8 on one host, want %d", w.FilesOfRank(), all.FilesOfRank())
	}
	if runtime.GOOS == "linux" {
		w := NewWorld(30, 1000, "", "demand")
		if got, want := w.FilesOfRank(), uint64(13+5*peers); got != want {
			t.Errorf("%d files of a rank of 1000 with 30 on its host, want %d", got, want)
		}
		if got, want := NewWorld(300, 300, "shm", "demand").FilesOfRank(), uint64(13+3*(12+3*9+2)); got != want {
			t.Errorf("%d files of a rank of 300 on one host, want %d", got, want)
		}
	}
	for have, level := range map[uint64]Level{13 + 5*12 - 1: Missing, 13 + 5*12: Scarce, 13 + 5*peers + 31: Scarce, 13 + 5*peers + 32: Enough} {
		f := check(w, limits{files: have, userThreads: unlimited, pids: unlimited, memory: unlimited})[0]
		if f.Level != level || !strings.Contains(f.Text, "needs 233 and some for its own files with 44 links, and 5008 with links to all ranks") {
			t.Errorf("with %d files: level %d, %q; want level %d", have, f.Level, f.Text, level)
		}
	}
	if few, all := w.memory(), NewWorld(4, 1000, "tcp", "").memory(); few*4 > all {
		t.Errorf("memory: %d with links on demand, %d with all", few, all)
	}
}
