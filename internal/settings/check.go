package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Check finds the first field that is beyond its bounds, not one of the
// values that it may have, or not above another one as it has to be. A text that is empty and a pointer that is nil are
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
		if f.Above != "" {
			if err := f.checkAbove(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAbove compares the field of a struct with the one that has to be less. If
// one of the two has its default the other one is to blame, which somebody has
// set.
func (f Field) checkAbove(s reflect.Value) error {
	tagged, ok := s.Type().FieldByName(f.Above)
	if !ok {
		panic(fmt.Sprintf("settings: there is no field %s for %s to be above", f.Above, f.Name))
	}
	less := Describe(tagged.Name, tagged.Tag)
	high, low := s.FieldByName(f.Name), s.FieldByName(f.Above)
	switch {
	case low.Int() <= 0 || high.Int() <= 0 || high.Int() > low.Int():
		return nil
	case f.isDefault(high) && !less.isDefault(low):
		return fmt.Errorf("%s=%s: not less than %s, which is %s", less.Variable, text(low), f.Variable, f.said(high))
	}
	return fmt.Errorf("%s=%s: not more than %s, which is %s", f.Variable, text(high), less.Variable, less.said(low))
}

// isDefault reports whether a number or a time is what it is if nobody sets it.
func (f Field) isDefault(v reflect.Value) bool {
	return f.Default != "" && v.Int() == bound(f.Default, v.Type())
}

// said is a value and whether it is the default.
func (f Field) said(v reflect.Value) string {
	if f.isDefault(v) {
		return text(v) + " by default"
	}
	return text(v)
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

// text is a value much as its variable would have it, quoted if it is one that
// could contain anything.
func text(v reflect.Value) string {
	if list, ok := v.Interface().([]string); ok {
		return strconv.Quote(strings.Join(list, ","))
	}
	if v.Kind() == reflect.String {
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v.Interface())
}
