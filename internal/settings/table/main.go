// Command table writes the tables of docs/config.md.
//
//	go run ./internal/settings/table config.go docs/config.md
//
// reads the struct Config in the first file and writes tables of its fields into the second
// one, between two marks; the text outside the marks stays. "go generate" calls it. A
// comment in the struct that begins with "# " and belongs to no field begins a table.
//
// It fails, and leaves the page unchanged, if a field has no table, no comment or no
// variable, or if the page has no marks.
package main

import (
	"bytes"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: table config.go config.md")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "table: %v\n", err)
		os.Exit(1)
	}
}

// run updates a page.
func run(source, page string) error {
	before, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	src, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	after, err := update(src, before)
	if err != nil {
		return err
	}
	return os.WriteFile(page, after, 0o644)
}

// The marks before and after the tables.
const (
	begin = "<!-- \"go generate\" writes these tables from config.go. -->\n"
	end   = "<!-- End of the generated tables. -->\n"
)

// update returns a page with the tables of a source.
func update(source, page []byte) ([]byte, error) {
	themes, err := parse(source)
	if err != nil {
		return nil, err
	}
	head, rest, found := bytes.Cut(page, []byte(begin))
	_, tail, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return nil, fmt.Errorf("the page lacks the marks %q and %q", begin, end)
	}
	var out bytes.Buffer
	out.Write(head)
	out.WriteString(begin)
	for _, t := range themes {
		t.write(&out)
	}
	out.WriteString("\n" + end)
	out.Write(tail)
	return out.Bytes(), nil
}
