package settings

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// parsers returns the parsers of types with a syntax of their own, or with better errors than
// those of package strconv.
func parsers() map[reflect.Type]env.ParserFunc {
	return map[reflect.Type]env.ParserFunc{
		reflect.TypeFor[time.Duration](): anyOf(Seconds),
		reflect.TypeFor[int]():           anyOf(whole),
		reflect.TypeFor[bool]():          anyOf(Truth),
	}
}

// anyOf converts a parser to the type that package env expects.
func anyOf[T any](parse func(string) (T, error)) env.ParserFunc {
	return func(value string) (any, error) { return parse(value) }
}

// Seconds parses a number of seconds, or a duration with a unit.
func Seconds(value string) (time.Duration, error) {
	if secs, err := strconv.ParseFloat(value, 64); err == nil {
		if math.IsNaN(secs) || math.Abs(secs) > math.MaxInt32 {
			return 0, errors.New("out of range")
		}
		return atLeast(time.Duration(secs*float64(time.Second)), value)
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, errors.New("neither a number of seconds nor a duration such as 250ms")
	}
	return atLeast(d, value)
}

// atLeast returns d, or an error if a value other than 0 has become 0, which would mean that the
// field is not set.
func atLeast(d time.Duration, value string) (time.Duration, error) {
	digits, _, _ := strings.Cut(strings.ToLower(value), "e") // without the exponent
	if d == 0 && strings.ContainsAny(digits, "123456789") {
		return 0, errors.New("shorter than a nanosecond")
	}
	return d, nil
}

// Truth parses 0 or 1, or true, t, yes, on, false or f, in any case. It refuses no and off: the Rust crate
// nexar, which has the same variables, takes them for true.
func Truth(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "1", "true", "t", "yes", "on":
		return true, nil
	case "0", "false", "f":
		return false, nil
	case "no", "off":
		return false, errors.New("write 0 or 1: the Rust crate nexar takes this word for true")
	}
	return false, errors.New("neither 0 nor 1")
}

// whole parses a whole number.
func whole(value string) (int, error) {
	n, err := strconv.Atoi(value)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("out of range")
	case err != nil:
		return 0, errors.New("not a whole number")
	}
	return n, nil
}
