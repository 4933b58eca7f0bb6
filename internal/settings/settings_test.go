//race:none it starts no goroutine

package settings

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// A colour is a string with a named type.
type colour string

// A sample has a field of every kind.
type sample struct {
	Name    string           `env:"S_NAME" default:"nobody"`
	Colour  colour           `env:"S_COLOUR" one:"red,green" default:"red"`
	Roads   []string         `env:"S_ROADS" also:"S_NO_ROADS" one:"land,sea,air" default:"land,sea"`
	Free    []string         `env:"S_FREE"`
	Count   int              `env:"S_COUNT" default:"7" min:"0" max:"9"`
	Place   *int             `env:"S_PLACE" min:"1"`
	Wait    time.Duration    `env:"S_WAIT_SECS" default:"1m30s" min:"0"`
	Share   int              `env:"S_SHARE" max:"100"`
	Quiet   bool             `env:"S_QUIET"`
	Dream   int              `env:"S_DREAM" min:"-2"`
	Hope    time.Duration    `env:"S_HOPE_SECS"`
	Pause   time.Duration    `env:"S_PAUSE_SECS" default:"5s" above:"Gap"`
	Gap     time.Duration    `env:"S_GAP_SECS" default:"1s"`
	Outside *strings.Builder `env:"-" also:"S_OUTSIDE" one:"a,b"`
}

func TestRead(t *testing.T) {
	place := 3
	environ := []string{
		"S_NAME=a b=c", "S_COLOUR=green", "S_ROADS=air,land", "S_NO_ROADS=1", "S_FREE=x,,y", "S_COUNT=-3", "S_PLACE=3",
		"S_WAIT_SECS=0.25", "S_QUIET=true", "S_DREAM=5", "S_OUTSIDE=what", "S_STRANGE=1", "OTHER=2", "S_SHARE=",
	}
	got, set, err := Read[sample](environ)
	want := sample{
		Name: "a b=c", Colour: "green", Roads: []string{"air", "land"}, Free: []string{"x", "", "y"}, Count: -3, Place: &place,
		Wait: 250 * time.Millisecond, Quiet: true, Dream: 5,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	wantSet := map[string]string{
		"S_NAME": "a b=c", "S_COLOUR": "green", "S_ROADS": "air,land", "S_NO_ROADS": "1", "S_FREE": "x,,y", "S_COUNT": "-3",
		"S_PLACE": "3", "S_WAIT_SECS": "0.25", "S_QUIET": "true", "S_DREAM": "5", "S_OUTSIDE": "what",
	}
	if !maps.Equal(set, wantSet) {
		t.Errorf("the variables %v are set, want %v", set, wantSet)
	}
}

func TestCaseHasNoMeaning(t *testing.T) {
	for value, want := range map[string]bool{"YES": true, "On": true, "TrUe": true, "T": true, "FALSE": false, "f": false, "0": false, "1": true} {
		if got, err := Truth(value); err != nil || got != want {
			t.Errorf("Truth(%q): %v, %v", value, got, err)
		}
	}
	got, _, err := Read[sample]([]string{"S_COLOUR=Green", "S_NAME=Nobody", "S_QUIET=On"})
	if want := (sample{Name: "Nobody", Colour: "green", Quiet: true}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, set, err := Read[sample]([]string{"S_OUTSIDE=B"}); err != nil || set["S_OUTSIDE"] != "b" {
		t.Errorf("S_OUTSIDE is %q, error %v", set["S_OUTSIDE"], err)
	}
}

// Read ignores the variables of fields that it does not read, even if they are malformed.
func TestReadSomeFields(t *testing.T) {
	got, set, err := Read[sample]([]string{"S_COUNT=many", "S_NAME=n", "S_NO_ROADS=1", "S_PLACE=x"}, "Name", "Roads")
	if err != nil || !reflect.DeepEqual(got, sample{Name: "n"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if want := map[string]string{"S_NAME": "n", "S_NO_ROADS": "1"}; !maps.Equal(set, want) {
		t.Errorf("the variables %v are set, want %v", set, want)
	}
}

func TestReadMalformed(t *testing.T) {
	for pair, want := range map[string]string{
		"S_COUNT=many":                 `S_COUNT="many": not a whole number`,
		"S_COUNT=1.5":                  `S_COUNT="1.5": not a whole number`,
		"S_COUNT=99999999999999999999": `S_COUNT="99999999999999999999": out of range`,
		"S_PLACE=0x10":                 `S_PLACE="0x10": not a whole number`,
		"S_QUIET=maybe":                `S_QUIET="maybe": neither 0 nor 1`,
		"S_QUIET=No":                   `S_QUIET="No": write 0 or 1: the Rust crate nexar takes this word for true`,
		"S_QUIET=off":                  `S_QUIET="off": write 0 or 1: the Rust crate nexar takes this word for true`,
		"S_WAIT_SECS=1e-12":            `S_WAIT_SECS="1e-12": shorter than a nanosecond`,
		"S_WAIT_SECS=soon":             `S_WAIT_SECS="soon": neither a number of seconds nor a duration such as 250ms`,
		"S_HOPE_SECS=1e300":            `S_HOPE_SECS="1e300": out of range`,
	} {
		if _, _, err := Read[sample]([]string{pair}); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", pair, err, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"2": 2 * time.Second, "0.25": 250 * time.Millisecond, "1e3": 1000 * time.Second, "250ms": 250 * time.Millisecond,
		"1m30s": 90 * time.Second, "-1": -time.Second, "0": 0, "0.0": 0, "0e9": 0, "0s": 0, "-0": 0, "1e-9": 1, "1ns": 1, "2147483647": 2147483647 * time.Second,
	} {
		if got, err := Seconds(value); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", value, got, err, want)
		}
	}
	for _, value := range []string{"", "soon", "1 minute", "NaN", "Inf", "-Inf", "1e300", "2147483648", "0x", "5S", "9999999999h", "1e-12", "-1e-10", "0.0000000009", "0.1ns", "1e-400", "0.000001us"} {
		if got, err := Seconds(value); err == nil {
			t.Errorf("%q is %v, want an error", value, got)
		}
	}
}

// Complete keeps fields that are set. An empty list is not set.
func TestComplete(t *testing.T) {
	own, other := 1, 2
	s := sample{Name: "own", Roads: []string{}, Free: []string{"own"}, Place: &own}
	Complete(&s, sample{Name: "other", Colour: "green", Roads: []string{"sea"}, Free: []string{"other"}, Count: 5, Place: &other, Quiet: true})
	want := sample{Name: "own", Colour: "green", Roads: []string{"sea"}, Free: []string{"own"}, Count: 5, Place: &own, Quiet: true}
	if !reflect.DeepEqual(s, want) || *s.Place != 1 {
		t.Errorf("got %+v, want %+v", s, want)
	}
}

func TestDefaults(t *testing.T) {
	t.Setenv("S_NAME", "of the environment")
	want := sample{Name: "nobody", Colour: "red", Roads: []string{"land", "sea"}, Count: 7, Wait: 90 * time.Second, Pause: 5 * time.Second, Gap: time.Second}
	if got := Defaults[sample](); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// A change of the list of one result does not change the next result.
	Defaults[sample]().Roads[0] = "air"
	if got := Defaults[sample](); got.Roads[0] != "land" {
		t.Errorf("the defaults have changed to %q", got.Roads)
	}
}

func TestDefaultsWantTagsThatFit(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a default that is no number was accepted")
		}
	}()
	Defaults[struct {
		Count int `env:"S_COUNT" default:"many"`
	}]()
}

func TestVariable(t *testing.T) {
	if got := Variable[sample]("Pause"); got != "S_PAUSE_SECS" {
		t.Errorf("got %s", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a field that there is not has a variable")
		}
	}()
	Variable[sample]("Nothing")
}

func TestFields(t *testing.T) {
	fields := Fields[sample]()
	if len(fields) != reflect.TypeFor[sample]().NumField() {
		t.Fatalf("there are %d fields", len(fields))
	}
	for i, want := range map[int]Field{
		2:  {Name: "Roads", Variable: "S_ROADS", Also: "S_NO_ROADS", Default: "land,sea", One: []string{"land", "sea", "air"}},
		4:  {Name: "Count", Variable: "S_COUNT", Default: "7", Min: "0", Max: "9"},
		9:  {Name: "Dream", Variable: "S_DREAM", Min: "-2"},
		11: {Name: "Pause", Variable: "S_PAUSE_SECS", Default: "5s", Above: "Gap"},
		13: {Name: "Outside", Also: "S_OUTSIDE", One: []string{"a", "b"}},
	} {
		if !reflect.DeepEqual(fields[i], want) {
			t.Errorf("field %d is %+v, want %+v", i, fields[i], want)
		}
	}
	for i, want := range map[int][]string{0: {"S_NAME"}, 2: {"S_ROADS", "S_NO_ROADS"}, 13: {"S_OUTSIDE"}} {
		if got := fields[i].Variables(); !slices.Equal(got, want) {
			t.Errorf("the variables of field %d are %q, want %q", i, got, want)
		}
	}
}
