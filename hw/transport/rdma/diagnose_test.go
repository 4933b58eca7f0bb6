//go:build linux

package rdma

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/verbs"
)

// TestDiagnose: with a device, Diagnose names it; without one, it gives the reason.
func TestDiagnose(t *testing.T) {
	var out strings.Builder
	usable := Diagnose(&out, Config{})
	names, err := verbs.Devices()
	want := "rdma: "
	if err == nil && len(names) > 0 {
		want = "rdma: uses " + names[0] + ", port "
	}
	if usable != (err == nil && len(names) > 0) || !strings.Contains(out.String(), want) {
		t.Errorf("Diagnose reports %v and writes, without %q:\n%s", usable, want, out.String())
	}
	out.Reset()
	if Diagnose(&out, Config{Device: "none_0"}) {
		t.Errorf("Diagnose finds a device that does not exist:\n%s", out.String())
	}
}

func gid(index, kind int, addr string) verbs.GID {
	return verbs.GID{Index: index, Kind: kind, GID: netip.MustParseAddr(addr).As16()}
}

// TestChooseGID: RoCE v2 and addresses that can be routed are preferred, and Config.GID overrides this.
func TestChooseGID(t *testing.T) {
	gids := []verbs.GID{
		gid(0, verbs.GIDRoCEv1, "fe80::1"), gid(1, verbs.GIDRoCEv2, "fe80::1"),
		gid(2, verbs.GIDRoCEv1, "10.0.0.1"), gid(3, verbs.GIDRoCEv2, "10.0.0.1"),
	}
	for wanted, index := range map[string]int{"": 3, "0": 0, "2": 2, "10.0.0.1": 3, "fe80::1": 1} {
		if g, err := chooseGID(verbs.Port{}, gids, wanted); err != nil || g.Index != index {
			t.Errorf("GID %q: chosen %d, error %v; want %d", wanted, g.Index, err, index)
		}
	}
	_, err := chooseGID(verbs.Port{Number: 1}, gids, "10.0.0.2")
	if err == nil || !strings.Contains(err.Error(), `GID "10.0.0.2": port 1 has 0 (fe80::1), `) {
		t.Errorf("error for an unknown GID: %v", err)
	}
	for _, cfg := range []Config{{MTU: 1000}, {MTU: 128}, {ServiceLevel: 16}, {TrafficClass: 256}} {
		if _, err := openDevice(cfg); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("error for %+v: %v", cfg, err)
		}
	}
}
