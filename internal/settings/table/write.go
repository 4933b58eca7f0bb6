package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// write writes a table.
func (t theme) write(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n| Field | Variable | Value | Default | Meaning |\n|---|---|---|---|---|\n", t.title)
	for _, f := range t.fields {
		fmt.Fprintf(w, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.variables(), f.value(), f.standard(), f.text())
	}
}

// variables returns the cell with the variables, one on each line.
func (f field) variables() string {
	if len(f.Variables()) == 0 {
		return "none: set by the program"
	}
	return "`" + strings.Join(f.Variables(), "`<br>`") + "`"
}

// value describes the values of the variable.
func (f field) value() string {
	switch {
	case len(f.Variables()) == 0:
		return f.typ
	case f.typ == "time.Duration":
		return "seconds"
	case f.typ == "bool":
		return "0 or 1"
	case strings.HasPrefix(f.typ, "[]") && len(f.One) > 0:
		return "list of " + either(f.One, "and")
	case strings.HasPrefix(f.typ, "[]"):
		return "list"
	case len(f.One) > 0:
		return either(f.One, "or")
	case strings.HasSuffix(f.Variable, "_BYTES"):
		return "bytes"
	case strings.TrimPrefix(f.typ, "*") == "int":
		return "number"
	}
	return "text"
}

// either joins values, the last one with a word.
func either(list []string, word string) string {
	last := len(list) - 1
	return "`" + strings.Join(list[:last], "`, `") + "` " + word + " `" + list[last] + "`"
}

// standard returns the default, in the syntax of the variable.
func (f field) standard() string {
	switch {
	case f.Default == "" && f.typ == "bool":
		return "`0`"
	case f.Default == "":
		return "none"
	}
	return "`" + f.Default + "`" + f.large()
}

// large returns a large number of bytes with a unit, in parentheses.
func (f field) large() string {
	n, err := strconv.Atoi(f.Default)
	switch {
	case err != nil || !strings.HasSuffix(f.Variable, "_BYTES") || n == 0:
	case n%(1<<30) == 0:
		return fmt.Sprintf(" (%d GiB)", n>>30)
	case n%(1<<20) == 0:
		return fmt.Sprintf(" (%d MiB)", n>>20)
	}
	return ""
}

// text returns the comment as Markdown, without the content of other cells.
func (f field) text() string {
	text := f.comment
	for _, end := range []string{".", ", separated by commas.", "=1."} {
		text = strings.TrimSuffix(text, " "+f.Variable+end)
	}
	text = regexp.MustCompile(`\bNEXAR_[A-Z_]+(=\w+)?`).ReplaceAllString(text, "`$0`")
	return strings.ReplaceAll(text, "|", `\|`)
}
