//go:build !race

package docs

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
)

// rustGuide is the guide for users of the Rust crate. The names and settings of the crate are in testdata/rust, which generate.sh there writes.
const rustGuide = "docs/guide/from-rust.md"

// TestRustGuideHasAllNames: the first columns of the tables have all public names of the crates, and no others.
func TestRustGuideHasAllNames(t *testing.T) {
	names := rustNames(t)
	missing := make(map[string]bool)
	for name := range names {
		missing[name] = true
	}
	for _, row := range rustRows(t) {
		base := ""
		for _, span := range spans(row.cells[0]) {
			if strings.HasPrefix(span, "NEXAR_") {
				continue
			}
			if strings.HasPrefix(span, "_") {
				span = base + span
			} else {
				base = span
			}
			found := row.resolve(names, span)
			if len(found) == 0 {
				t.Errorf("below %q: %q is no name of the crate", row.heading, span)
			}
			for _, name := range found {
				delete(missing, name)
			}
		}
	}
	for name := range missing {
		t.Errorf("the guide lacks %s", name)
	}
}

// TestRustGuideNamesExist: all names of Go, variables and commands in the guide exist.
func TestRustGuideNamesExist(t *testing.T) {
	exported, listed := exportedNames(t), commands(t)
	rust := make(map[string]bool) // also members without their types
	for name := range rustNames(t) {
		rust[name] = true
		for _, member, ok := strings.Cut(name, "::"); ok; _, member, ok = strings.Cut(member, "::") {
			rust[member] = true
		}
	}
	check := func(where, span string, orRust bool) {
		if command, ok := strings.CutPrefix(span, "nexar "); ok && !slices.Contains(listed, strings.Fields(command)[0]) {
			t.Errorf("%s: there is no command %q", where, span)
		}
		if span[0] <= '9' { // a number or a size
			return
		}
		for _, word := range regexp.MustCompile(`\w+(?:(?:\.|::)\w+)*`).FindAllString(span, -1) {
			isName := len(word) > 1 && (strings.Contains(word, ".") || strings.ToLower(word) != word)
			if isName && !strings.HasPrefix(word, "NEXAR_") && !exported[word] && !(orRust && rust[word]) {
				t.Errorf("%s: %q does not exist", where, word)
			}
		}
	}
	for _, row := range rustRows(t) {
		for i, cell := range row.cells[1:] {
			for _, span := range spans(cell) {
				check(row.heading, span, row.columns[i+1] != "Go")
			}
		}
	}
	text := readDocument(t, rustGuide)
	for _, paragraph := range strings.Split(regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, ""), "\n\n") {
		if !strings.HasPrefix(paragraph, "|") && !strings.HasPrefix(paragraph, "#") {
			for _, span := range spans(paragraph) {
				check("prose", span, true)
			}
		}
	}
	imported := strings.Split(regexp.MustCompile(`use nexar::\{(.*)\};`).FindStringSubmatch(text)[1], ", ")
	program := regexp.MustCompile(`(?:\b(?:`+strings.Join(imported, "|")+`)::|\bclient\.)\w+`).FindAllString(text, -1)
	for _, name := range append(imported, program...) {
		if !rust[strings.Replace(name, "client.", "NexarClient::", 1)] {
			t.Errorf("the Rust program has %q, which is no name of the crate", name)
		}
	}
	for _, variable := range regexp.MustCompile(`NEXAR_\w+`).FindAllString(text, -1) {
		for _, p := range nexar.CheckEnviron([]string{variable + "=1"}) {
			if !strings.Contains(p.Text, "has no effect") {
				t.Error(p.Text)
			}
		}
	}
}

// TestRustGuideSettings: the table has each variable of the crate with its field and default there, and the default here.
// Variables without an effect are those that CheckEnviron reports.
func TestRustGuideSettings(t *testing.T) {
	type row struct{ field, there, goField, here string }
	got := make(map[string]row)
	for _, r := range rustRows(t) {
		if first := spans(r.cells[0]); len(r.cells) == 5 {
			got[first[1]] = row{strings.TrimPrefix(first[0], "ClusterConfig::"), strings.Trim(r.cells[2], "`"), strings.Trim(r.cells[3], "`"), r.cells[4]}
		}
	}
	page := readDocument(t, "docs/config.md")
	settings := strings.Split(strings.TrimSpace(readDocument(t, "test/docs/testdata/rust/settings.txt")), "\n")
	for _, line := range settings {
		parts := strings.SplitN(line, " ", 3)
		variable, r := parts[0], got[parts[0]]
		there := strings.Replace(parts[2], "None", "none", 1)
		if r.field != parts[1] || r.there != there {
			t.Errorf("%s: the table has the field %q with the default %q, want %q and %q", variable, r.field, r.there, parts[1], there)
		}
		if noEffect := len(nexar.CheckEnviron([]string{variable + "=1"})) > 0; noEffect != (r.goField == "no effect") {
			t.Errorf("%s: the table has %q, and CheckEnviron says: without effect %t", variable, r.goField, noEffect)
		}
		field, ofConfig := strings.CutPrefix(r.goField, "Config.")
		documented := regexp.MustCompile("(?m)^\\| `" + field + "` \\| `" + variable + "`[^|]*\\|[^|]*\\| ([^|]*) \\|").FindStringSubmatch(page)
		switch {
		case documented != nil:
			if r.here != documented[1] {
				t.Errorf("%s: the table has the default %s, and docs/config.md %s", variable, r.here, documented[1])
			}
		case ofConfig: // a second variable of a field, a switch
			t.Setenv(variable, strings.Trim(r.here, "`"))
			if cfg, err := nexar.ConfigFromEnv(); err != nil || !reflect.DeepEqual(cfg, nexar.Config{}) {
				t.Errorf("%s=%s is not the default: %+v, error %v", variable, r.here, cfg, err)
			}
		case !strings.Contains(page, "`"+variable+"`") && !strings.Contains(page, "`"+variable+"="):
			t.Errorf("docs/config.md lacks %s", variable)
		}
	}
	if len(got) != len(settings) {
		t.Errorf("the table has %d settings, the crate %d", len(got), len(settings))
	}
}

// A rustRow is a row of a table with a first column "Rust".
type rustRow struct {
	heading        string // of the section
	types          []string
	columns, cells []string
}

// resolve returns the names that a word of the first column means: members of the types of the section or, if there are none, a full
// name. "T::*" means all members of T.
func (r *rustRow) resolve(names map[string]bool, word string) (found []string) {
	for _, prefix := range append(r.types, "") {
		full := strings.TrimPrefix(word, "nexar::")
		if prefix != "" {
			full = prefix + "::" + word
		} else if len(found) > 0 {
			break
		}
		for name := range names {
			if members, ok := strings.CutSuffix(full, "*"); name == full || ok && strings.HasPrefix(name, members) {
				found = append(found, name)
			}
		}
	}
	return found
}

// rustRows returns the rows of the tables of names and settings in the guide.
func rustRows(t *testing.T) (rows []rustRow) {
	t.Helper()
	var section rustRow
	for line := range strings.Lines(readDocument(t, rustGuide)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			section = rustRow{heading: line, types: spans(line)}
		}
		if !strings.HasPrefix(line, "|") {
			section.columns = nil
			continue
		}
		row := section
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			row.cells = append(row.cells, strings.TrimSpace(cell))
		}
		switch {
		case section.columns == nil:
			section.columns = row.cells
		case len(row.cells) != len(row.columns):
			t.Errorf("%s\nhas %d cells, want %d", line, len(row.cells), len(row.columns))
		case !strings.HasPrefix(line, "|---") && section.columns[0] != "Example":
			rows = append(rows, row)
		}
	}
	if len(rows) < 100 {
		t.Fatalf("the guide has %d rows: adapt this test", len(rows))
	}
	return rows
}

// rustNames returns the public names of the crates.
func rustNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for name := range strings.FieldsSeq(readDocument(t, "test/docs/testdata/rust/names.txt")) {
		names[name] = true
	}
	return names
}

// exportedNames returns the exported names of this project: "nexar.Comm.Split", "Comm.Split", "compress.TopK".
func exportedNames(t *testing.T) map[string]bool {
	t.Helper()
	names, pkg := make(map[string]bool), ""
	declaration := regexp.MustCompile(`^(?:const|var|func|type|field) ([\w.]+)|^method \(\*?(\w+)\) (\w+)`)
	for line := range strings.Lines(readDocument(t, "docs/api/v0.1.0.txt")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			pkg = path[strings.LastIndex(path, "/")+1:]
		}
		if m := declaration.FindStringSubmatch(line); m != nil {
			name := m[1]
			if name == "" {
				name = m[2] + "." + m[3]
			}
			names[pkg+"."+name] = true
			if pkg == "nexar" {
				names[name] = true
			}
		}
	}
	return names
}

// commands returns the subcommands of nexar that the README lists.
func commands(t *testing.T) []string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| commands \\| `nexar (.*)` \\|$").FindStringSubmatch(readDocument(t, "README.md"))
	if row == nil {
		t.Fatal("the README has no row of commands")
	}
	return strings.Split(row[1], "` `")
}

// spans returns the texts in code font.
func spans(text string) (list []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		list = append(list, strings.Join(strings.Fields(m[1]), " "))
	}
	return list
}

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
