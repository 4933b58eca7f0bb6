package shm

import (
	"runtime"
	"strings"
	"testing"
)

// platform is whether this package works where the tests run.
const platform = runtime.GOOS == "linux"

func TestSupported(t *testing.T) {
	err := Supported()
	if platform && err != nil {
		t.Errorf("Supported() = %v", err)
	}
	if !platform && (err == nil || !strings.Contains(err.Error(), runtime.GOOS)) {
		t.Errorf("Supported() = %v, want an error that names %s", err, runtime.GOOS)
	}
}

func TestNewElsewhere(t *testing.T) {
	tr, err := New(Config{Cluster: "elsewhere", Node: "a"})
	if err == nil {
		tr.Close()
	}
	if platform != (err == nil) {
		t.Errorf("New on %s: %v", runtime.GOOS, err)
	}
}

func TestNewRefuses(t *testing.T) {
	long := strings.Repeat("x", nameBytesMax+1)
	for name, test := range map[string]struct {
		cfg  Config
		want string
	}{
		"no node":        {Config{}, "Config.Node is empty"},
		"a long node":    {Config{Node: long}, "255 bytes"},
		"a long cluster": {Config{Cluster: long, Node: "a"}, "255 bytes"},
		"minus an area":  {Config{Node: "a", AreaSize: -1}, "areas of -1"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := New(test.cfg)
			if err == nil {
				tr.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New: %v, want an error with %q", err, test.want)
			}
		})
	}
}
