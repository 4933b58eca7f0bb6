// Package settings reads the settings of a program, the fields of a struct,
// from its environment. The tag of a field describes it:
//
//	env      its environment variable
//	also     another variable, which the package of the struct reads itself
//	default  the default, in the syntax of the variable
//	min, max the bounds of a number or a time
//	above    the name of a field; if both are positive, this one, a number or a time,
//	         must be greater
//	one      the allowed values of a text, or of each element of a list
//
// Most callers [Read] a struct from the environment, [Complete] the fields that the
// program has set with it, then Complete the result with the [Defaults], and [Check] it.
// Numbers are integers. Booleans are 0 or 1, or another value that [Truth] accepts. Lists are
// separated by commas. Times are numbers of seconds or values for
// time.ParseDuration ("250ms"), and not so short that they become 0. An empty variable is
// not set. The case of a text with the tag "one" has no meaning.
//
// Errors name the variable and its value. A tag that does not fit the type of its field panics.
// All functions may be called concurrently; none keeps state.
package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// A Field describes a field of a struct, from its tag.
type Field struct {
	Name     string // in the struct
	Variable string // or ""
	Also     string // another variable, or ""
	Default  string // or ""
	Min, Max string // the bounds, or ""
	Above    string // the name of the field that must be less, or ""
	One      []string
}

// Describe parses the tag of the field name.
func Describe(name string, tag reflect.StructTag) Field {
	f := Field{
		Name: name, Variable: tag.Get("env"), Also: tag.Get("also"),
		Default: tag.Get("default"),
		Min:     tag.Get("min"), Max: tag.Get("max"), Above: tag.Get("above"),
	}
	if one := tag.Get("one"); one != "" {
		f.One = strings.Split(one, ",")
	}
	if f.Variable == "-" { // the syntax of package env for no variable
		f.Variable = ""
	}
	return f
}

// Variables returns the variables of the field.
func (f Field) Variables() []string {
	return slices.DeleteFunc([]string{f.Variable, f.Also}, func(name string) bool { return name == "" })
}

// Fields describes all fields of a struct, in order.
func Fields[T any]() []Field {
	t := reflect.TypeFor[T]()
	list := make([]Field, t.NumField())
	for i := range list {
		list[i] = Describe(t.Field(i).Name, t.Field(i).Tag)
	}
	return list
}

// Variable returns the variable of a field of a struct. It panics if the struct has no such field.
func Variable[T any](field string) string {
	f, ok := reflect.TypeFor[T]().FieldByName(field)
	if !ok {
		panic("settings: no field " + field)
	}
	return Describe(f.Name, f.Tag).Variable
}

// Read reads a struct from an environment in the form of os.Environ, and returns the variables that
// are set. It reads only the given fields, or all if there are none.
func Read[T any](environ []string, fields ...string) (s T, set map[string]string, err error) {
	set = make(map[string]string)
	all := env.ToMap(environ)
	for _, f := range Fields[T]() {
		if len(fields) > 0 && !slices.Contains(fields, f.Name) {
			continue
		}
		for _, name := range f.Variables() {
			if value := all[name]; value != "" {
				set[name] = f.allowed(value)
			}
		}
	}
	err = env.ParseWithOptions(&s, env.Options{Environment: set, FuncMap: parsers()})
	if p, ok := errors.AsType[env.ParseError](err); ok {
		f, _ := reflect.TypeFor[T]().FieldByName(p.Name)
		name := Describe(f.Name, f.Tag).Variable
		err = fmt.Errorf("%s=%q: %w", name, set[name], p.Err)
	}
	return s, set, err
}

// allowed returns the allowed value that equals value without regard to case, or value if there is none.
func (f Field) allowed(value string) string {
	if i := slices.IndexFunc(f.One, func(one string) bool { return strings.EqualFold(one, value) }); i >= 0 {
		return f.One[i]
	}
	return value
}

// Defaults returns a struct with the defaults of all fields.
func Defaults[T any]() (s T) {
	none := map[string]string{}
	if err := env.ParseWithOptions(&s, env.Options{Environment: none, DefaultValueTagName: "default", FuncMap: parsers()}); err != nil {
		panic("settings: " + err.Error())
	}
	return s
}

// Complete sets the fields of s that are zero, or empty lists, to their values in other.
func Complete[T any](s *T, other T) {
	dst, src := reflect.ValueOf(s).Elem(), reflect.ValueOf(other)
	for i := range dst.NumField() {
		if f := dst.Field(i); f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
			f.Set(src.Field(i))
		}
	}
}
