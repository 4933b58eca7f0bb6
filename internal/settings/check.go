package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Check returns an error for the first field that is out of its bounds, has a value that is not
// allowed, or is not greater than the field in its "above" tag. An empty text and a nil pointer
// are not set and pass.
func Check[T any](s T) error {
	v := reflect.ValueOf(s)
	for i, f := range Fields[T]() {
		value := reflect.Indirect(v.Field(i))
		if !value.IsValid() {
			continue
		}
		if why := f.fault(value); why != "" {
			return fmt.Errorf("%s=%s: %s", f.Variable, text(value), why)
		}
		if f.Above != "" {
			if err := f.checkAbove(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAbove compares a field with the field that must be less. If one of them has its default, the
// error is about the other one.
func (f Field) checkAbove(s reflect.Value) error {
	tagged, ok := s.Type().FieldByName(f.Above)
	if !ok {
		panic(fmt.Sprintf("settings: the tag of %s names %s, which is not a field", f.Name, f.Above))
	}
	less := Describe(tagged.Name, tagged.Tag)
	high, low := s.FieldByName(f.Name), s.FieldByName(f.Above)
	switch {
	case low.Int() <= 0 || high.Int() <= 0 || high.Int() > low.Int():
		return nil
	case f.isDefault(high) && !less.isDefault(low):
		return fmt.Errorf("%s=%s: not less than %s, which is %s", less.Variable, text(low), f.Variable, f.describe(high))
	}
	return fmt.Errorf("%s=%s: not more than %s, which is %s", f.Variable, text(high), less.Variable, less.describe(low))
}

// isDefault reports whether a number or a time is the default of the field.
func (f Field) isDefault(v reflect.Value) bool {
	return f.Default != "" && v.Int() == bound(f.Default, v.Type())
}

// describe returns a value, and whether it is the default.
func (f Field) describe(v reflect.Value) string {
	if f.isDefault(v) {
		return text(v) + " by default"
	}
	return text(v)
}

// fault returns why a value is not allowed, or "".
func (f Field) fault(v reflect.Value) string {
	switch {
	case f.Min != "" && v.Int() < bound(f.Min, v.Type()), f.Max != "" && v.Int() > bound(f.Max, v.Type()):
		return f.bounds()
	case f.One == nil:
		return ""
	case v.Kind() == reflect.String && v.Len() > 0 && !slices.Contains(f.One, v.String()):
		return "not one of " + strings.Join(f.One, ", ")
	case v.Kind() == reflect.Slice:
		for _, part := range v.Seq2() {
			if !slices.Contains(f.One, part.String()) {
				return fmt.Sprintf("%q is not one of %s", part, strings.Join(f.One, ", "))
			}
		}
	}
	return ""
}

// bounds describes the bounds.
func (f Field) bounds() string {
	switch {
	case f.Min == "":
		return "more than " + f.Max
	case f.Max != "":
		return "not from " + f.Min + " to " + f.Max
	case f.Min == "0":
		return "negative"
	}
	return "less than " + f.Min
}

// bound parses a bound of a field of type t.
func bound(text string, t reflect.Type) int64 {
	parse := func(text string) (int64, error) {
		n, err := whole(text)
		return int64(n), err
	}
	if t == reflect.TypeFor[time.Duration]() {
		parse = func(text string) (int64, error) {
			d, err := Seconds(text)
			return int64(d), err
		}
	}
	n, err := parse(text)
	if err != nil {
		panic(fmt.Sprintf("settings: bound %q of a %v: %v", text, t, err))
	}
	return n
}

// text formats a value in about the syntax of its variable. Texts and lists are quoted.
func text(v reflect.Value) string {
	if list, ok := v.Interface().([]string); ok {
		return strconv.Quote(strings.Join(list, ","))
	}
	if v.Kind() == reflect.String {
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v.Interface())
}
