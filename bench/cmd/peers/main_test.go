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
	if err != nil || len(f.settings) != len(campaign.Settings()) || f.campaign.Rounds != 5 || f.docs != filepath.Join("..", "docs") {
		t.Errorf("without flags: got %+v, %v", f, err)
	}
	f, err = parse([]string{"-quick", "-ops", "barrier", "-settings", "shm-8,loopback-2", "-systems", "gloo,openmpi-shm", "-sizes", "1KiB"}, io.Discard)
	if err != nil || len(f.settings) != 2 || f.campaign.Rounds != 1 || f.campaign.Schedule.Sizes[0] != 1024 || strings.Contains(f.docs, "docs") {
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
	docs := t.TempDir()
	if err := run(t.Context(), []string{"-page", "-docs", docs}, io.Discard, io.Discard); err == nil {
		t.Error("-page without raw files: no error")
	}
	file := &results.File{
		Header:  results.Header{Setting: "shm-4", Systems: []results.System{{Name: "a", Label: "A"}}},
		Entries: []results.Entry{{Round: 1, System: "a", Op: "broadcast", Bytes: 8, US: 2}},
	}
	if err := file.Write(filepath.Join(docs, "results", "shm-4"+results.Suffix)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-page", "-docs", docs}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(docs, "results.md"))
	if err != nil || !strings.Contains(string(text), "2.0 µs") || !strings.Contains(out.String(), "results.md") {
		t.Errorf("got %v, %q and the page\n%s", err, out.String(), text)
	}
}

// TestPageIsCurrent checks that docs/results.md is the output of -page for the raw files beside it.
func TestPageIsCurrent(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	files, err := results.ReadAll(filepath.Join(docs, "results"), campaign.Names())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(docs, "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != results.Page("results", files) {
		t.Error("docs/results.md differs from its source: run \"make bench-peers PEERS=-page\"")
	}
}

func TestShowWithoutTerminal(t *testing.T) {
	var out bytes.Buffer
	s := newShow(&out, 2)
	s.progress("shm-4", "A", 1)
	s.note("it broke")
	s.progress("shm-4", "B", 1)
	s.end()
	for _, want := range []string{"1/2  shm-4, round 1: A", "it broke", "2/2  shm-4, round 1: B"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out.String(), want)
		}
	}
}
