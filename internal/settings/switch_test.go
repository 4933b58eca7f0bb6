package settings

import (
	"slices"
	"testing"
)

func TestSwitch(t *testing.T) {
	all := []string{"a", "b"}
	for _, test := range []struct {
		list  []string
		value string
		want  []string
		bad   bool
	}{
		{nil, "", nil, false},
		{[]string{"b"}, "1", []string{"b"}, false},
		{nil, "0", []string{"a"}, false},
		{[]string{"b"}, "0", []string{"rest"}, false},
		{nil, "off?", nil, true},
	} {
		got, err := Switch(test.list, all, "b", "rest", "V", map[string]string{"V": test.value})
		if !slices.Equal(got, test.want) || (err != nil) != test.bad {
			t.Errorf("Switch(%v, %q) = %v, %v, want %v", test.list, test.value, got, err, test.want)
		}
	}
	if !slices.Equal(all, []string{"a", "b"}) {
		t.Error("the list of all has changed")
	}
}

func TestOpposite(t *testing.T) {
	for _, test := range []struct {
		value           bool
		plain, contrary string
		want, bad       bool
	}{
		{false, "", "", false, false},
		{true, "1", "", true, false},
		{false, "", "1", false, false},
		{false, "", "0", true, false},
		{true, "1", "0", true, false},
		{true, "1", "1", false, true},
		{false, "0", "0", false, true},
		{false, "", "what", false, true},
	} {
		got, err := Opposite(test.value, "P", "C", map[string]string{"P": test.plain, "C": test.contrary})
		if err == nil && got != test.want || (err != nil) != test.bad {
			t.Errorf("%+v: got %v, %v", test, got, err)
		}
	}
}

func TestOverruled(t *testing.T) {
	for _, test := range []struct {
		program, environment bool
		value                string
		bad                  bool
	}{{true, false, "0", true}, {true, true, "1", false}, {false, false, "0", false}, {true, false, "", false}} {
		if err := Overruled(test.program, test.environment, "F", "P", "C", map[string]string{"P": test.value}); (err != nil) != test.bad {
			t.Errorf("%+v: got %v", test, err)
		}
	}
}
