package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Check finds the first field that is beyond its bounds, or not one of the
// values that it may have. A text that is empty and a pointer that is nil are
// not set, and pass.
func Check[T any](s T) error {
	v := reflect.ValueOf(s)
	for i, f := range Fields[T]() {
		value := reflect.Indirect(v.Field(i))
		if !value.IsValid() {
			continue
		}
		if why := f.refuses(value); why != "" {
			return fmt.Errorf("%s=%s: %s", f.Variable, text(value), why)
		}
	}
	return nil
}

// refuses says why a value cannot be.
func (f Field) refuses(v reflect.Value) string {
	switch {
	case f.Min != "" && v.Int() < bound(f.Min, v.Type()), f.Max != "" && v.Int() > bound(f.Max, v.Type()):
		return f.beyond()
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

// beyond says what the bounds are.
func (f Field) beyond() string {
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

// bound is a bound as a value of a type.
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
		panic(fmt.Sprintf("settings: %q is no bound of a %v: %v", text, t, err))
	}
	return n
}

// text is a value much as its variable would have it.
func text(v reflect.Value) string {
	if list, ok := v.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(v.Interface())
}
