package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/bench/campaign"
	"github.com/nexar-go/nexar/bench/results"
)

func TestFlags(t *testing.T) {
	f, err := parse(nil, io.Discard)
	if err != nil || len(f.settings) != len(campaign.Settings(2)) || f.campaign.Rounds != 12 || f.docs != filepath.Join("..", "docs") {
		t.Errorf("without flags: got %+v, %v", f, err)
	}
	f, err = parse([]string{"-ops", "barrier", "-settings", "shm-4,tcp-2", "-systems", "impi", "-sizes", "1KiB"}, io.Discard)
	if err != nil || len(f.settings) != 2 || f.campaign.Schedule.Sizes[0] != 1024 {
		t.Errorf("with flags: got %+v, %v", f, err)
	}
	for _, s := range f.settings {
		if len(s.Systems) != 1 || len(s.Ops) != 1 {
			t.Errorf("%s: got %d systems and %d operations, want one of each", s.Name, len(s.Systems), len(s.Ops))
		}
	}
	for _, bad := range []string{
		"-rounds 0", "-budget 0", "-timeout -1s", "-settings none", "-sizes 3", "-ops fly", "-systems none", "more", "-no-such",
	} {
		if _, err := parse(strings.Fields(bad), io.Discard); err == nil {
			t.Errorf("%s: got no error, want one", bad)
		}
	}
}

// TestPageOnly writes the page from a raw file of an earlier measurement.
func TestPageOnly(t *testing.T) {
	docs, raw := t.TempDir(), t.TempDir()
	args := []string{"-page", "-docs", docs, "-raw", raw}
	if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
		t.Error("-page without raw files: no error")
	}
	file := &results.File{
		Header: results.Header{Setting: "shm-4", Systems: []results.System{{Name: "a", Label: "A"}, {Name: "n", Label: "nexar", Ours: true}}},
		Entries: []results.Entry{
			{Round: 1, System: "a", Op: "broadcast", Bytes: 8, US: 2, Before: 0.1, After: 0.1},
			{Round: 1, System: "n", Op: "broadcast", Bytes: 8, US: 4, Before: 0.1, After: 0.1},
		},
	}
	if err := file.Write(filepath.Join(raw, "shm-4"+results.Suffix)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, "results.md"))
	if err != nil || !strings.Contains(string(text), "≈0.50°") || !strings.Contains(out.String(), "results.md") {
		t.Errorf("got %v, %q and the page\n%s", err, out.String(), text)
	}
}
