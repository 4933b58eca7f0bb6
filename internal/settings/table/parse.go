package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"reflect"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/internal/settings"
)

// A theme is a table.
type theme struct {
	title  string
	fields []field
}

// A field is a row.
type field struct {
	settings.Field
	typ     string // in Go syntax
	comment string
}

// parse reads the struct Config of a Go file.
func parse(source []byte) ([]theme, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "config.go", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	config := configOf(f)
	if config == nil {
		return nil, errors.New("struct Config not found")
	}
	var themes []theme
	headings := headings(f, config)
	for _, member := range config.Fields.List {
		for len(headings) > 0 && headings[0].Pos() < member.Pos() {
			title, ok := strings.CutPrefix(plain(headings[0]), "# ")
			if !ok {
				return nil, fmt.Errorf("%v: comment belongs to no field and is not a heading, which begins with \"# \"", fset.Position(headings[0].Pos()))
			}
			themes = append(themes, theme{title: title})
			headings = headings[1:]
		}
		row, err := rowOf(member)
		if err == nil && len(themes) == 0 {
			err = errors.New("field before the first heading")
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", fset.Position(member.Pos()), err)
		}
		last := &themes[len(themes)-1]
		last.fields = append(last.fields, row)
	}
	return themes, nil
}

// configOf returns the type of Config, or nil.
func configOf(f *ast.File) (found *ast.StructType) {
	ast.Inspect(f, func(n ast.Node) bool {
		if t, ok := n.(*ast.TypeSpec); ok && t.Name.Name == "Config" {
			found, _ = t.Type.(*ast.StructType)
		}
		return found == nil
	})
	return found
}

// headings returns the comments in a struct that belong to no field.
func headings(f *ast.File, s *ast.StructType) (list []*ast.CommentGroup) {
	of := make(map[*ast.CommentGroup]bool)
	for _, member := range s.Fields.List {
		of[member.Doc], of[member.Comment] = true, true
	}
	for _, c := range f.Comments {
		if c.Pos() > s.Pos() && c.End() < s.End() && !of[c] {
			list = append(list, c)
		}
	}
	return list
}

// rowOf returns the row of a field.
func rowOf(member *ast.Field) (field, error) {
	if len(member.Names) != 1 || member.Tag == nil {
		return field{}, errors.New("want one name and a tag for each field")
	}
	tag, err := strconv.Unquote(member.Tag.Value)
	if err != nil {
		return field{}, err
	}
	row := field{
		Field: settings.Describe(member.Names[0].Name, reflect.StructTag(tag)),
		typ:   types.ExprString(member.Type), comment: plain(member.Doc),
	}
	switch {
	case row.comment == "":
		return field{}, fmt.Errorf("%s has no comment", row.Name)
	case len(row.Variables()) == 0 && reflect.StructTag(tag).Get("set") != "program":
		return field{}, fmt.Errorf("%s has no variable", row.Name)
	}
	return row, nil
}

// plain returns the text of a comment as one line.
func plain(c *ast.CommentGroup) string {
	var lines []string
	if c != nil {
		for _, line := range c.List {
			lines = append(lines, strings.TrimSpace(strings.TrimPrefix(line.Text, "//")))
		}
	}
	return strings.TrimSpace(strings.Join(lines, " "))
}
