package main

import (
	"path/filepath"
	"testing"
)

// TestAppendedRounds reads the rounds of a file that two runs have written.
func TestAppendedRounds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs.jsonl.gz")
	for _, line := range []string{`{"round":1,"algorithm":"ring"}`, `{"round":2,"algorithm":"ring"}`} {
		if err := appendTo(file, []byte(line+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readMeasurements(file)
	if err != nil || len(got) != 2 || got[1].Round != 2 {
		t.Errorf("got %+v, %v, want the lines of both rounds", got, err)
	}
}
