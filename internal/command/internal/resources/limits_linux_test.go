package resources

import (
	"os"
	"path/filepath"
	"testing"
)

// write makes files below a directory, which it returns.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCgroup(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"no cgroups", nil, unlimited},
		{"version 2", map[string]string{
			"proc/self/cgroup":                "0::/a/b\n",
			"sys/fs/cgroup/a/b/pids.max":      "max\n",
			"sys/fs/cgroup/a/b/pids.current":  "7\n",
			"sys/fs/cgroup/a/pids.max":        "100\n",
			"sys/fs/cgroup/a/pids.current":    "30\n",
			"sys/fs/cgroup/other/pids.max":    "1\n",
			"sys/fs/cgroup/pids/pids.max":     "2\n",
			"sys/fs/cgroup/pids/pids.current": "0\n",
		}, 70},
		{"version 1", map[string]string{
			"proc/self/cgroup":                  "9:name=systemd:/x\n8:pids:/a\n0::/\n",
			"sys/fs/cgroup/pids/a/pids.max":     "64\n",
			"sys/fs/cgroup/pids/a/pids.current": "60\n",
		}, 4},
		{"a container that does not see its path", map[string]string{
			"proc/self/cgroup":           "0::/docker/0123\n",
			"sys/fs/cgroup/pids.max":     "50\n",
			"sys/fs/cgroup/pids.current": "60\n",
		}, 0},
	} {
		if got := cgroup(write(t, test.files), "pids", "pids.max", "pids.current"); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	for _, test := range []struct {
		files map[string]string
		want  uint64
	}{
		{map[string]string{"proc/meminfo": "MemTotal:  900 kB\nMemAvailable:  500 kB\n"}, 500 << 10},
		{map[string]string{"proc/meminfo": "MemAvailable:  500 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4096\n"}, 4096},
		{map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, unlimited},
	} {
		if got := read(write(t, test.files)).memory; got != test.want {
			t.Errorf("%v: got %d, want %d", test.files, got, test.want)
		}
	}
}

func TestThreadsOf(t *testing.T) {
	root := write(t, map[string]string{
		"proc/1/status": "Uid:\t0\t0\t0\t0\nThreads:\t5\n",
		"proc/2/status": "Uid:\t7\t7\t7\t7\nThreads:\t3\n",
		"proc/3/status": "Uid:\t7\t7\t7\t7\nThreads:\t4\n",
	})
	if got := threadsOf(root, 7); got != 7 {
		t.Errorf("got %d threads, want 7", got)
	}
}
