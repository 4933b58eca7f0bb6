// Command table writes the tables of docs/config.md.
//
//	go run ./internal/settings/table config.go docs/config.md
//
// reads the struct Config in the first file and puts tables of its fields into
// the second one, between two marks; what people have written around them stays.
// "go generate" calls it. A comment of the struct that is none of a field and
// begins with "# " begins a table.
//
// It fails, and leaves the page as it is, if a field has no table, no comment or
// no variable, or if the page has no marks.
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

// run brings a page up to date.
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

// The marks between which the tables are.
const (
	begin = "<!-- The tables are made of config.go by \"go generate\". -->\n"
	end   = "<!-- Here they end. -->\n"
)

// update is a page with the tables of a source.
func update(source, page []byte) ([]byte, error) {
	themes, err := parse(source)
	if err != nil {
		return nil, err
	}
	head, rest, found := bytes.Cut(page, []byte(begin))
	_, tail, ended := bytes.Cut(rest, []byte(end))
	if !found || !ended {
		return nil, fmt.Errorf("the page has no marks %q and %q", begin, end)
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
