//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestGuide compiles the programs of the guide about hardware.
func TestGuide(t *testing.T) {
	const root = "../.." // of the module
	text, err := os.ReadFile(filepath.Join(root, "../docs/guide/hardware.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(text, -1)
	if len(programs) == 0 {
		t.Fatal("the guide has no program")
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	args := []string{"build", "-overlay=" + filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "bin") + "/"}
	for i, program := range programs {
		name := fmt.Sprintf("guide%d", i)
		here, err := filepath.Abs(filepath.Join(root, name, "main.go")) // in the overlay only
		if err != nil {
			t.Fatal(err)
		}
		replace[here] = filepath.Join(dir, name+".go")
		if err := os.WriteFile(replace[here], program[1], 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "./"+name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
}
