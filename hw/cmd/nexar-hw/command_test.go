//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/hw/internal/verbsfake"
	"github.com/nexar-go/nexar/hw/transport/rdma"
	"github.com/nexar-go/nexar/internal/command"
)

// runCommand lets the test binary be the command, with the fake driver and the libibverbs that libraryVariable names.
const (
	runCommand      = "NEXARHW_TEST_COMMAND"
	libraryVariable = "NEXARHW_TEST_LIBRARY"
	noLibrary       = "libibverbs-none.so.1"
)

func TestMain(m *testing.M) {
	if os.Getenv(runCommand) != "" {
		if _, err := cudafake.Load(); err != nil {
			panic(err)
		}
		verbs.Library = cmp.Or(os.Getenv(libraryVariable), noLibrary)
		command.Main(hardware(os.Getenv(cudafake.PathVariable), "libnccl-none.so.2"))
	}
	os.Exit(m.Run())
}

// runHere runs the command.
func runHere(t *testing.T, args ...string) (text string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), runCommand+"=1", cudafake.PathVariable+"="+cudafake.New(t).Path)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestBenchOnGPUs: bench measures all operations with vectors on GPUs, in processes, and their results are right.
func TestBenchOnGPUs(t *testing.T) {
	out, err := runHere(t, "bench", "-n", "3", "--device", "cuda", "--iters", "2", "--max", "4KiB", "--factor", "64")
	if err != nil || !strings.Contains(out, "on cuda:0; bandwidths") || !strings.Contains(out, "13 operations, ") || !strings.Contains(out, ", 0 wrong elements") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestBenchNamesGPU: the JSON of all measurements with vectors on GPUs names the GPU, and the tables of algorithms do so.
func TestBenchNamesGPU(t *testing.T) {
	args := []string{"bench", "-n", "2", "--device", "cuda", "--op", "all_reduce", "--iters", "1", "--max", "64", "--factor", "8"}
	for _, more := range [][]string{{"--json", "-"}, {"--algorithms", "--json", "-"}} {
		out, err := runHere(t, append(args, more...)...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", more, err, out)
		}
		lines := 0
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "{") {
				continue // of the summary
			}
			var result struct{ Op, Device string }
			if err := json.Unmarshal([]byte(line), &result); err != nil || result.Op != "all_reduce" || result.Device != "cuda:0" {
				t.Errorf("%v: %v, result %+v, want one of cuda:0:\n%s", more, err, result, line)
			}
			lines++
		}
		if lines < 2 {
			t.Errorf("%v: %d results, want one for each of two sizes\n%s", more, lines, out)
		}
	}
	out, err := runHere(t, append(args, "--algorithms")...)
	for _, want := range []string{", float32 on cuda:0; medians", "cost and choice are those for vectors in memory of the host\n", "all_reduce of 64 B: "} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v, without %q:\n%s", err, want, out)
		}
	}
}

// TestNoSuchHardware: hardware that is missing is an error, and no other hardware is measured in its place.
func TestNoSuchHardware(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"bench", "-n", "2", "--device", "tpu"}, `nexar-hw bench: --device "tpu": want one of cuda`},
		{[]string{"bench", "-n", "2", "--transport", "ib"}, `nexar-hw bench: --transport "ib": want one of auto, mem, shm, tcp, quic, rdma`},
	} {
		out, err := runHere(t, test.args...)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%v: %v, without %q:\n%s", test.args, err, test.want, out)
		}
	}
}

// TestDoctor: doctor has findings about hardware. Hardware that is missing is no failure, and doctor says how to add it.
func TestDoctor(t *testing.T) {
	verbsfake.New(t)
	fake := verbs.Library // New has set it.
	for library, want := range map[string][]string{
		noLibrary: {"rdma: verbs: cannot open libibverbs-none.so.1", "install libibverbs1 and ibverbs-providers, or the packages of the vendor"},
		fake:      {"rdma: uses fake0, port 1, GID 0 (10.0.0.1), MTU 4096"},
	} {
		t.Setenv(libraryVariable, library)
		out, err := runHere(t, "doctor", "--json")
		for _, want := range append(want, "locked memory (memlock): a link over RDMA locks about 2 MiB", `"about": "gpus"`, "cuda:0: Fake device", "NCCL is not installed", `"about": "rdma"`, `"healthy": true`) {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("with %s: %v, without %q:\n%s", library, err, want, out)
			}
		}
	}
}

// TestRDMADevice: doctor, bench and programs of run use the RDMA device of the variables, and the help names them.
func TestRDMADevice(t *testing.T) {
	verbsfake.New(t)
	t.Setenv(libraryVariable, verbs.Library) // New has set it.
	bench := []string{"bench", "-n", "1", "--transport", "rdma", "--op", "all_reduce", "--iters", "1", "--max", "64", "--factor", "8"}
	for _, test := range []struct {
		device, port string
		args         []string
		fails        bool
		want         string
	}{
		{"fake0", "1", []string{"doctor"}, false, "rdma: uses fake0, port 1, "},
		{"fake7", "", []string{"doctor"}, false, `rdma: no device can be used: device fake7: `},
		{"", "1", []string{"doctor"}, false, "rdma: no device can be used: NEXARHW_RDMA_PORT needs NEXARHW_RDMA_DEVICE"},
		{"fake7", "", []string{"run", "-n", "1", "--", os.Args[0], "doctor"}, false, `rdma: no device can be used: device fake7: `},
		{"fake0", "1", bench, false, ", 0 wrong elements"},
		{"fake7", "", bench, true, "rdma: no device can be used"},
		{"", "", []string{"help"}, false, "NEXARHW_RDMA_DEVICE names the RDMA device"},
	} {
		t.Setenv(rdma.DeviceVariable, test.device)
		t.Setenv(rdma.PortVariable, test.port)
		out, err := runHere(t, test.args...)
		if (err != nil) != test.fails || !strings.Contains(out, test.want) {
			t.Errorf("device %q, port %q, %v: %v, without %q:\n%s", test.device, test.port, test.args, err, test.want, out)
		}
	}
}
