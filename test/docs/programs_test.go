//go:build !race

package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/nexar-go/nexar/internal/testbuild"
)

// programs are the command nexar, the program allreduce of the examples, the programs hello of the README and ranks of the guide
// from-rust.md, and the tests in the documents, snippets.exe.
var programs = testbuild.Set{Build: buildPrograms}

// TestMain changes to the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	os.Exit(programs.Around(m).Run())
}

// buildPrograms builds the programs into dir. The files of hello, ranks and of the snippets exist in an overlay only.
func buildPrograms(dir string) error {
	replace := make(map[string]string)
	add := func(path, source string) error {
		here, err := filepath.Abs(filepath.FromSlash(path))
		if err != nil {
			return err
		}
		replace[here] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		return os.WriteFile(replace[here], []byte(source), 0o600)
	}
	for name, document := range map[string]string{"hello": "README.md", "ranks": rustGuide} {
		source, err := goProgram(document)
		if err == nil {
			err = add(name+"/main.go", source)
		}
		if err != nil {
			return err
		}
	}
	if err := addSnippets(add); err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		return err
	}
	const small = "-ldflags=-s -w" // linked in half of the time
	return errors.Join(
		testbuild.Go("build", small, "-overlay="+overlay, "-o", dir+string(filepath.Separator), "./cmd/nexar", "./examples/allreduce", "./hello", "./ranks"),
		// The directory docs/snippets exists in the overlay only, so vet and tests cannot run there.
		testbuild.Go("test", "-c", "-vet=off", small, "-overlay="+overlay, "-o", filepath.Join(dir, "snippets.exe"), "./docs/snippets"), // Windows needs the suffix.
	)
}

// goProgram returns the Go program of a document that has one.
func goProgram(document string) (string, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return "", err
	}
	blocks := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 {
		return "", fmt.Errorf("%s has %d Go programs, want 1", document, len(blocks))
	}
	return string(blocks[0][1]), nil
}
