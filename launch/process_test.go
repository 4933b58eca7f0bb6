package launch_test

import (
	"testing"

	"github.com/nexar-go/nexar/launch"
)

func TestOneHost(t *testing.T) {
	for _, test := range []struct {
		p    launch.Process
		want bool
	}{
		{launch.Process{Size: 4, LocalSize: 4}, true},
		{launch.Process{Size: 4, LocalSize: 2}, false},
		{launch.Process{Size: 4}, false},
		{launch.Process{}, false},
	} {
		if got := test.p.OneHost(); got != test.want {
			t.Errorf("%+v: OneHost = %v", test.p, got)
		}
	}
}
