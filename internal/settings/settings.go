// Package settings reads the settings of a program, the fields of a struct,
// from its environment. What there is to know of a field is in its tag:
//
//	env      the variable that sets it
//	also     a further variable, which the package of the struct reads itself
//	default  what a field that is zero becomes, as the variable would say it
//	idle     the same for a field that has no effect yet, and that stays zero
//	min, max the bounds of a number or a time
//	above    the field than which this one, a number or a time, has to be more,
//	         where both are more than 0
//	one      the values that a text, or each part of a list, may have
//
// Most callers Read a struct from the environment, Complete with it what a
// program has set itself, then Complete both with the Defaults, and Check the
// result. Numbers are whole numbers, truth values 0 or 1 or as
// strconv.ParseBool takes them, lists are separated by commas. Times are
// numbers of seconds, or as time.ParseDuration takes them ("250ms"), and not so
// short that they become 0. A variable that is empty is not set.
//
// Errors name the variable and its value. A tag that contradicts the type of its
// field is a mistake in the program and panics. All functions may be called at
// the same time; none keeps anything.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// A Field is what the tag of a field says.
type Field struct {
	Name     string // in the struct
	Variable string // that sets it, or ""
	Also     string // a further one, or ""
	Default  string // what a zero field becomes, or ""
	Idle     bool   // the field has no effect yet
	Min, Max string // the bounds, or ""
	Above    string // the name of the field that is less, or ""
	One      []string
}

// Describe reads a tag.
func Describe(name string, tag reflect.StructTag) Field {
	idle, isIdle := tag.Lookup("idle")
	f := Field{
		Name: name, Variable: tag.Get("env"), Also: tag.Get("also"),
		Default: cmp.Or(tag.Get("default"), idle), Idle: isIdle,
		Min: tag.Get("min"), Max: tag.Get("max"), Above: tag.Get("above"),
	}
	if one := tag.Get("one"); one != "" {
		f.One = strings.Split(one, ",")
	}
	if f.Variable == "-" { // As package env has it.
		f.Variable = ""
	}
	return f
}

// Variables are those that set the field.
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

// Variable is the variable of a field of a struct. It panics if there is no such
// field.
func Variable[T any](field string) string {
	f, ok := reflect.TypeFor[T]().FieldByName(field)
	if !ok {
		panic("settings: there is no field " + field)
	}
	return Describe(f.Name, f.Tag).Variable
}

// Read makes a struct of the variables in an environment, as os.Environ has it,
// and returns those that are set. Fields are those whose variables count; none
// are all.
func Read[T any](environ []string, fields ...string) (s T, set map[string]string, err error) {
	set = make(map[string]string)
	all := env.ToMap(environ)
	for _, f := range Fields[T]() {
		if len(fields) > 0 && !slices.Contains(fields, f.Name) {
			continue
		}
		for _, name := range f.Variables() {
			if value := all[name]; value != "" {
				set[name] = value
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

// Defaults is a struct whose fields are as they are if nobody sets them. Those
// that have no effect yet are zero.
func Defaults[T any]() (s T) {
	none := map[string]string{}
	if err := env.ParseWithOptions(&s, env.Options{Environment: none, DefaultValueTagName: "default", FuncMap: parsers()}); err != nil {
		panic("settings: " + err.Error())
	}
	return s
}

// Complete gives the fields of s that are zero, or lists without elements, the
// values that they have in other.
func Complete[T any](s *T, other T) {
	dst, src := reflect.ValueOf(s).Elem(), reflect.ValueOf(other)
	for i := range dst.NumField() {
		if f := dst.Field(i); f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
			f.Set(src.Field(i))
		}
	}
}

// Idle are the variables of those fields that are not zero and have no effect
// yet.
func Idle[T any](s T) (names []string) {
	v := reflect.ValueOf(s)
	for i, f := range Fields[T]() {
		if f.Idle && !v.Field(i).IsZero() {
			names = append(names, f.Variable)
		}
	}
	return names
}
