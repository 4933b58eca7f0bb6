//go:build linux

package rdma

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/hw/internal/verbsfake"
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

// libraryVariable names the variable with the library of a process that only runs Diagnose, and memlockVariable the one with its limit
// of locked memory in bytes.
const (
	libraryVariable = "RDMA_TEST_LIBRARY"
	memlockVariable = "RDMA_TEST_MEMLOCK"
)

// diagnoseHere writes the output of Diagnose with a library.
func diagnoseHere(library string) {
	verbs.Library = library
	if n, err := strconv.ParseUint(os.Getenv(memlockVariable), 10, 64); err == nil {
		const memlock = 8 // RLIMIT_MEMLOCK of all architectures that Go supports on Linux, except MIPS
		if err := syscall.Setrlimit(memlock, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			panic(err)
		}
	}
	fmt.Println("usable:", Diagnose(os.Stdout, Config{}))
}

// diagnoseWith returns the output of diagnoseHere in another process, since a process opens one library.
func diagnoseWith(t *testing.T, library string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(env, libraryVariable+"="+library)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// wantLines fails the test unless all parts are in the text.
func wantLines(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: no %q in:\n%s", what, part, text)
		}
	}
}

// TestDiagnoseLibrary: Diagnose says how to install a missing library, and which version of it has a missing function.
func TestDiagnoseLibrary(t *testing.T) {
	needFake(t)
	wantLines(t, "no library", diagnoseWith(t, "libibverbs-none.so.1"), "rdma: verbs: cannot open libibverbs-none.so.1",
		"install libibverbs1 and ibverbs-providers, or the packages of the vendor", "usable: false")
	var source strings.Builder
	for _, f := range strings.Fields(`get_device_list free_device_list get_device_name open_device close_device query_device query_port alloc_pd dealloc_pd
		reg_mr dereg_mr create_comp_channel destroy_comp_channel create_cq destroy_cq get_cq_event ack_cq_events create_qp modify_qp destroy_qp wc_status_str
		get_async_event ack_async_event`) {
		fmt.Fprintf(&source, "void *ibv_%s(void) { return 0; }\n", f)
	}
	old, err := cudafake.Build("ibverbs-old", []byte(source.String()))
	if err != nil {
		t.Fatal(err)
	}
	wantLines(t, "an old library", diagnoseWith(t, old), "has no _ibv_query_gid_ex", "rdma-core 32 or later is needed", "usable: false")
	wantLines(t, "a low limit", diagnoseWith(t, verbs.Library, memlockVariable+"=65536"),
		"the limit of locked memory is 64 KiB: raise it to 65536 KiB or more (ulimit -l, LimitMEMLOCK of systemd)", "rdma: uses fake0", "usable: true")
}

// TestDiagnoseFaults: Diagnose names missing parts, and how to add them.
func TestDiagnoseFaults(t *testing.T) {
	needFake(t)
	ethernet := func(p verbsfake.Port) []verbsfake.Device { return []verbsfake.Device{{Ports: []verbsfake.Port{p}}} }
	for name, test := range map[string]struct {
		devices []verbsfake.Device
		call    string // that fails with code
		code    syscall.Errno
		usable  bool
		want    []string
	}{
		"no kernel module": {ethernet(verbsfake.Port{}), "ibv_get_device_list", syscall.ENOSYS, false,
			[]string{"rdma: no device\n", "the kernel module ib_uverbs may be missing", "modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE"}},
		"no device": {nil, "", 0, false, []string{"rdma: no device\n", "modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE"}},
		"no permission": {ethernet(verbsfake.Port{}), "ibv_open_device", syscall.EACCES, false,
			[]string{"fake0: verbs: ibv_open_device fake0: permission denied; the user may lack the permission for /dev/infiniband", "rdma: no device can be used: device fake0: "}},
		"no locked memory": {ethernet(verbsfake.Port{}), "ibv_reg_mr", syscall.ENOMEM, false,
			[]string{"rdma: verbs: ibv_reg_mr of 524288 bytes: cannot allocate memory; the limit of locked memory (ulimit -l) may be too low"}},
		"a port that is down": {ethernet(verbsfake.Port{Down: true}), "", 0, false,
			[]string{"port 1: down, Ethernet, MTU 4096", "rdma: no device can be used: device fake0: none of its 1 ports is active"}},
		"an address that is not routed": {ethernet(verbsfake.Port{GID: netip.MustParseAddr("fe80::9")}), "", 0, true,
			[]string{"rdma: uses fake0, port 1, GID 0 (fe80::9), MTU 4096", "rdma: GID fe80::9 is a link-local address, which no router forwards"}},
		"InfiniBand without windows": {[]verbsfake.Device{{NoWindows: true, Ports: []verbsfake.Port{{LID: 3, MTU: 2048, GID: netip.MustParseAddr("fe80::9")}}}}, "", 0, true,
			[]string{"fake0: no memory windows of type 2, so no remote writes", "port 1: active, InfiniBand, MTU 2048", "GID 0: fe80::9, InfiniBand"}},
	} {
		t.Run(name, func(t *testing.T) {
			needDevices(t, test.devices...)
			wantNoObjects(t)
			fake.Error(test.call, test.code)
			defer fake.Error("", 0)
			var out strings.Builder
			if usable := Diagnose(&out, Config{}); usable != test.usable {
				t.Errorf("Diagnose reports %v, want %v", usable, test.usable)
			}
			wantLines(t, name, out.String(), test.want...)
			if name == "InfiniBand without windows" && strings.Contains(out.String(), "link-local") {
				t.Errorf("a hint about the address of a port of InfiniBand:\n%s", out.String())
			}
			if _, err := os.Stat("/sys/class/infiniband_verbs"); err != nil && test.call == "ibv_get_device_list" {
				wantLines(t, name, out.String(), "the kernel module ib_uverbs is not loaded: modprobe ib_uverbs")
			}
		})
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
