//race:none it starts no goroutine

package inspect

import (
	"net"
	"slices"
	"strings"
	"testing"
)

func TestMachine(t *testing.T) {
	r := Machine("127.0.0.1:0", "", []string{"quic"})
	if _, port, err := net.SplitHostPort(r.Listen); err != nil || port == "0" {
		t.Errorf("socket at %q, want one with a port", r.Listen)
	}
	if !slices.Contains(r.Transports, "quic") {
		t.Errorf("transports %v, want quic among them", r.Transports)
	}
	if !hasProblem(r, "only loopback addresses") {
		t.Errorf("problems %v, want one about loopback addresses", r.Problems)
	}
	if r := Machine("127.0.0.1:0", "192.0.2.1:7000", nil); hasProblem(r, "only loopback addresses") {
		t.Errorf("problems %v, though another address is advertised", r.Problems)
	}
}

// A port in use is fatal.
func TestMachineWithoutSocket(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r := Machine(taken.LocalAddr().String(), "", nil)
	if !slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Fatal }) {
		t.Errorf("problems %v, want a fatal one", r.Problems)
	}
}

func TestJudge(t *testing.T) {
	healthy := Report{ReadBuffer: 8, WriteBuffer: 8, WantedBuffer: 8, Watched: true, Advertised: []string{"192.0.2.1:1"}}
	for name, test := range map[string]struct {
		change func(r *Report)
		want   string
	}{
		"nothing":       {func(*Report) {}, ""},
		"short buffers": {func(r *Report) { r.WriteBuffer = 4 }, "UDP buffers of 4 bytes"},
		"not watched":   {func(r *Report) { r.Watched = false }, "no TCP port"},
		"loopback":      {func(r *Report) { r.Advertised = []string{"127.0.0.1:1", "[::1]:1"} }, "only loopback addresses"},
	} {
		r := healthy
		test.change(&r)
		r.judge("raise it")
		if test.want == "" && len(r.Problems) > 0 || test.want != "" && !hasProblem(r, test.want) {
			t.Errorf("%s: problems %v, want %q", name, r.Problems, test.want)
		}
	}
}

func hasProblem(r Report, text string) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return strings.Contains(p.Text, text) })
}

// With TCP alone, no UDP socket is opened.
func TestWithoutUDP(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r := Machine(taken.LocalAddr().String(), "", []string{"tcp"})
	if r.UDP || r.Listen != taken.LocalAddr().String() || slices.Contains(r.Transports, "quic") || !slices.Contains(r.Transports, "tcp") {
		t.Errorf("report %+v", r)
	}
	for _, p := range r.Problems {
		if p.Fatal {
			t.Errorf("problem %+v", p)
		}
	}
}
