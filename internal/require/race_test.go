package require

import "testing"

func TestNoRace(t *testing.T) {
	for _, test := range []struct {
		race   bool
		extent Extent
		want   bool
	}{{false, Few, false}, {false, Most, false}, {false, All, false}, {true, Few, true}, {true, Most, true}, {true, All, false}} {
		if got := leftOut(test.race, test.extent); got != test.want {
			t.Errorf("race %v, extent %d: left out %v, want %v", test.race, test.extent, got, test.want)
		}
	}
	t.Setenv("TRIALS", "")
	o := new(outcome)
	NoRace(o, "it copies gigabytes")
	want := ""
	if Race {
		want = "skipped"
	}
	if o.how != want {
		t.Errorf("%q with the detector %v, want %q", o.how, Race, want)
	}
}
