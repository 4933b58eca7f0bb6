//go:build unix

package command

import (
	"net"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
)

// TestSeedCannotListen: the error says why, and the remedy.
func TestSeedCannotListen(t *testing.T) {
	t.Setenv("NEXAR_CLUSTER_TOKEN", nexar.NewToken())
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	used := tcp.Addr().String()
	if udp, err := net.ListenPacket("udp", used); err == nil {
		defer udp.Close()
	} // Otherwise the port of UDP is in use as well.
	for listen, remedy := range map[string]string{
		"198.51.100.1:0": "use an address of this host, or :port for all of them", // RFC 5737
		used:             "another program, such as an earlier seed, uses the port: end it, or choose another port",
	} {
		var out, log strings.Builder
		status := execute(Hardware{}, []string{"seed", "--world", "1", "--listen", listen}, nil, &out, &log)
		host, _, _ := net.SplitHostPort(listen)
		if text := log.String(); status != statusFailed || !strings.Contains(text, host) || !strings.HasSuffix(text, ": "+remedy+"\n") {
			t.Errorf("--listen %s: status %d, %q, want the remedy %q", listen, status, text, remedy)
		}
	}
}
