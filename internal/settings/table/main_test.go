//race:none it reads the source

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const source = `package p

// Other is none of it.
type Other struct {
	A int // of another
}

// Config is.
type Config struct {
	// # First

	// Wait is how long,
	// at most: S_OTHER=1 | none. S_WAIT_SECS.
	Wait time.Duration ` + "`env:\"S_WAIT_SECS\" default:\"5m\"`" + `

	// Roads are some. S_ROADS, separated by commas.
	Roads []string ` + "`env:\"S_ROADS\" also:\"S_NO_ROADS\" one:\"land,sea,air\"`" + `
	// Free is. S_FREE=1.
	Free bool ` + "`env:\"S_FREE\"`" + `

	// # Second
	//

	// Size is. S_SIZE_BYTES, with more.
	Size int ` + "`env:\"S_SIZE_BYTES\" default:\"3145728\"`" + `
	// Log is.
	Log *slog.Logger ` + "`env:\"-\" also:\"NEXAR_LOG\" one:\"debug,info\"`" + `
	// Rank is NEXAR_RANK=1 or so.
	Rank *int ` + "`env:\"S_RANK\"`" + `
	// Name is.
	Name string ` + "`env:\"S_NAME\"`" + `
	// List is.
	List []string ` + "`env:\"S_LIST\"`" + `
}
`

const tables = `
## First

| Field | Variable | Value | Default | Meaning |
|---|---|---|---|---|
| ` + "`Wait` | `S_WAIT_SECS` | seconds | `5m`" + ` | Wait is how long, at most: S_OTHER=1 \| none. |
| ` + "`Roads` | `S_ROADS`<br>`S_NO_ROADS` | list of `land`, `sea` and `air`" + ` | none | Roads are some. |
| ` + "`Free` | `S_FREE` | 0 or 1 | `0`" + ` | Free is. |

## Second

| Field | Variable | Value | Default | Meaning |
|---|---|---|---|---|
| ` + "`Size` | `S_SIZE_BYTES` | bytes | `3145728` (3 MiB)" + ` | Size is. S_SIZE_BYTES, with more. |
| ` + "`Log` | `NEXAR_LOG` | `debug` or `info`" + ` | none | Log is. |
| ` + "`Rank` | `S_RANK` | number | none | Rank is `NEXAR_RANK=1`" + ` or so. |
| ` + "`Name` | `S_NAME`" + ` | text | none | Name is. |
| ` + "`List` | `S_LIST`" + ` | list | none | List is. |

`

// The text outside the marks stays, and a second update changes nothing.
func TestUpdate(t *testing.T) {
	const head, tail = "# Settings\n\nWords.\n\n", "\nMore words.\n"
	page := head + begin + "whatever was there\n" + end + tail
	want := head + begin + tables + end + tail
	for range 2 {
		got, err := update([]byte(source), []byte(page))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Fatalf("got:\n%s\nwant:\n%s", got, want)
		}
		page = string(got)
	}
}

func TestUpdateRefuses(t *testing.T) {
	const tag = "`env:\"S_A\"`"
	config := func(fields string) string { return "package p\n\ntype Config struct {\n" + fields + "\n}\n" }
	marks := begin + end
	for name, test := range map[string]struct{ source, page, want string }{
		"no Go":               {"Config", marks, "expected 'package'"},
		"no struct":           {"package p\n", marks, "struct Config not found"},
		"no marks":            {source, "# Settings\n", "lacks the marks"},
		"marks turned around": {source, end + begin, "lacks the marks"},
		"no heading":          {config("// A is.\nA int " + tag), marks, "config.go:5:1: field before the first heading"},
		"no comment":          {config("// # T\n\nA int " + tag), marks, "A has no comment"},
		"no tag":              {config("// # T\n\n// A is.\nA int"), marks, "want one name and a tag for each field"},
		"two fields at once":  {config("// # T\n\n// A is.\nA, B int " + tag), marks, "want one name and a tag for each field"},
		"no variable":         {config("// # T\n\n// A is.\nA int `env:\"-\"`"), marks, "A has no variable"},
		"a lost comment":      {config("// # T\n\n// Lost.\n\n// A is.\nA int " + tag), marks, "comment belongs to no field"},
	} {
		if _, err := update([]byte(test.source), []byte(test.page)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}

// A page that cannot be updated stays unchanged.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	src, page := filepath.Join(dir, "config.go"), filepath.Join(dir, "config.md")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(page); err != nil || string(got) != want {
			t.Errorf("the page is %q, %v, want %q", got, err, want)
		}
	}
	if err := run(src, page); err == nil {
		t.Error("there are no files, but that is no error")
	}
	write(page, begin+end)
	if err := run(src, page); err == nil {
		t.Error("there is no source, but that is no error")
	}
	write(src, "package p\n")
	if err := run(src, page); err == nil {
		t.Error("there is no struct, but that is no error")
	}
	expect(begin + end)
	write(src, source)
	if err := run(src, page); err != nil {
		t.Error(err)
	}
	expect(begin + tables + end)
}

// docs/config.md is up to date with go generate.
func TestPageIsCurrent(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	src, err := os.ReadFile(filepath.Join(root, "config.go"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "config.md"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := update(src, page)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != string(want) {
		t.Error("docs/config.md is not current: call go generate")
	}
}
