package require

import "testing"

func TestNoRace(t *testing.T) {
	for trials, skipped := range map[string]bool{"": Race, "few": Race, "all": false} {
		t.Setenv("TRIALS", trials)
		o := new(outcome)
		NoRace(o, "it copies gigabytes")
		if got := o.how == "skipped"; got != skipped {
			t.Errorf("TRIALS=%q, with the detector %v: %q, want it skipped: %v", trials, Race, o.how, skipped)
		}
	}
}
