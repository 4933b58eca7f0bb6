//go:build unix

package quic

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestBuffers: a limit of the system is logged at the first call of the function that enlarge returns, with the command that
// raises it; as information if another process of the host warns.
func TestBuffers(t *testing.T) {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, test := range []struct {
		bytes      int
		othersWarn bool
		want       string // in the log, once
	}{{1<<31 - 1, false, "level=WARN"}, {1<<31 - 1, true, "level=INFO"}, {4096, false, ""}} {
		var log bytes.Buffer
		warn := enlarge(udp, test.bytes, Config{Log: slog.New(slog.NewTextHandler(&log, nil)), OthersWarn: test.othersWarn})
		if log.Len() != 0 {
			t.Errorf("%+v: before a connection the log says %q", test, log.String())
		}
		warn()
		warn()
		got := log.String()
		if test.want == "" && got != "" || test.want != "" && (strings.Count(got, test.want) != 1 || !strings.Contains(got, raiseBuffers)) {
			t.Errorf("%+v: the log says %q", test, got)
		}
	}
}
