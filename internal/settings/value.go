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

// parsers are for the types whose values people write in their own way, or for
// which the errors of package strconv would say too little.
func parsers() map[reflect.Type]env.ParserFunc {
	return map[reflect.Type]env.ParserFunc{
		reflect.TypeFor[time.Duration](): anyOf(Seconds),
		reflect.TypeFor[int]():           anyOf(whole),
		reflect.TypeFor[bool]():          anyOf(Truth),
	}
}

// anyOf is a parser as package env wants it.
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

// atLeast is d, unless that is 0 for a value that is not: a time of 0 is one that
// nobody has set.
func atLeast(d time.Duration, value string) (time.Duration, error) {
	digits, _, _ := strings.Cut(strings.ToLower(value), "e") // of the number, not of its exponent
	if d == 0 && strings.ContainsAny(digits, "123456789") {
		return 0, errors.New("shorter than a nanosecond")
	}
	return d, nil
}

// Truth parses 0 or 1, or another word for them.
func Truth(value string) (bool, error) {
	b, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("neither 0 nor 1")
	}
	return b, nil
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
