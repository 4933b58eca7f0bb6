//go:build linux

package rdma

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/verbsfake"
)

// TestDeviceVariables: the variables choose the device, the port and the GID of a configuration that chooses none of them. Invalid values, and
// a port without a device, are errors.
func TestDeviceVariables(t *testing.T) {
	first, second, third := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	needDevices(t,
		verbsfake.Device{Ports: []verbsfake.Port{{GID: first}}},
		verbsfake.Device{Ports: []verbsfake.Port{{GID: second}, {GID: third}}})
	wantNoObjects(t)
	type choice struct{ device, port, gid string }
	for name, test := range map[string]struct {
		set  choice
		cfg  Config
		want string // the device, the port and the address, or a part of the error
	}{
		"none":                         {choice{}, Config{}, "fake0 1 10.0.0.1"},
		"a device":                     {choice{device: "fake1"}, Config{}, "fake1 1 10.0.0.2"},
		"a device and its port":        {choice{device: "fake1", port: "2"}, Config{}, "fake1 2 10.0.0.3"},
		"an address":                   {choice{gid: "10.0.0.2"}, Config{}, "fake1 1 10.0.0.2"},
		"an index":                     {choice{device: "fake1", gid: "0"}, Config{}, "fake1 1 10.0.0.2"},
		"a device of the program":      {choice{device: "fake0", port: "7", gid: "10.0.0.9"}, Config{Device: "fake1"}, "fake1 1 10.0.0.2"},
		"an address of the program":    {choice{device: "fake0"}, Config{GID: "10.0.0.2"}, "fake1 1 10.0.0.2"},
		"other fields of the program":  {choice{device: "fake1"}, Config{MTU: 1024}, "fake1 1 10.0.0.2"},
		"an unknown device":            {choice{device: "fake2"}, Config{}, `no RDMA device "fake2"; there are: fake0, fake1`},
		"no number":                    {choice{device: "fake1", port: "two"}, Config{}, `NEXARHW_RDMA_PORT="two": must be a number from 1 on`},
		"port 0":                       {choice{device: "fake1", port: "0"}, Config{}, `NEXARHW_RDMA_PORT="0": must be a number from 1 on`},
		"a port alone":                 {choice{port: "1"}, Config{}, "NEXARHW_RDMA_PORT needs NEXARHW_RDMA_DEVICE, the name of the device"},
		"a port alone, of the program": {choice{device: "fake1"}, Config{Port: 2}, "port 2: needs the name of its device, Config.Device"},
		"a negative port":              {choice{}, Config{Device: "fake1", Port: -1}, "port -1: must be at least 1"},
		"an unknown address":           {choice{device: "fake1", gid: "10.0.0.9"}, Config{}, `GID "10.0.0.9": port 1 has 0 (10.0.0.2)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(DeviceVariable, test.set.device)
			t.Setenv(PortVariable, test.set.port)
			t.Setenv(GIDVariable, test.set.gid)
			var out strings.Builder
			usable := Diagnose(&out, test.cfg)
			want := "rdma: no device can be used: "
			reason := test.want
			if words := strings.Fields(test.want); words[0] == "fake0" || words[0] == "fake1" {
				want = "rdma: uses " + words[0] + ", port " + words[1] + ", GID 0 (" + words[2] + ")"
				reason = ""
			}
			if usable != (reason == "") || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), reason) {
				t.Errorf("usable: %v; no %q with %q in:\n%s", usable, want, reason, out.String())
			}
		})
	}
}
