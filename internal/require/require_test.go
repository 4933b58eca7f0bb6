//race:none it starts no goroutine

package require

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// An outcome is a test that records a skip or a failure.
type outcome struct {
	testing.TB
	how, text string
}

func (o *outcome) Helper() {}

func (o *outcome) Skipf(format string, args ...any) {
	o.how, o.text = "skipped", fmt.Sprintf(format, args...)
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.how, o.text = "failed", fmt.Sprintf(format, args...)
}

func TestHave(t *testing.T) {
	tests := []struct {
		required string
		ok       bool
		want     string
	}{
		{"", true, ""},
		{"", false, "skipped"},
		{"netns", true, ""},
		{"netns", false, "failed"},
		{"root, netns ,cuda", false, "failed"},
		{"cuda", false, "skipped"},
		{"netns2", false, "skipped"},
		{"NETNS", false, "skipped"},
	}
	for _, test := range tests {
		t.Setenv(variable, test.required)
		o := new(outcome)
		Have(o, "netns", test.ok, "no ip command")
		if o.how != test.want {
			t.Errorf("%s=%q, ok=%v: %q, want %q", variable, test.required, test.ok, o.how, test.want)
		}
		if o.how != "" && (!strings.Contains(o.text, "no ip command") || !strings.Contains(o.text, "netns")) {
			t.Errorf("text %q, want the name and the reason", o.text)
		}
	}
}

func TestRoot(t *testing.T) {
	t.Setenv(variable, "root")
	o := new(outcome)
	Root(o)
	want := "failed"
	if os.Geteuid() == 0 {
		want = ""
	}
	if o.how != want {
		t.Errorf("%q as user %d, want %q", o.how, os.Geteuid(), want)
	}
}
