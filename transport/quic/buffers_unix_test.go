//go:build unix

package quic

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// TestBuffers checks that a limit of the system is logged once, with the command that
// raises it.
func TestBuffers(t *testing.T) {
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	var log bytes.Buffer
	enlarge(udp, 1<<31-1, slog.New(slog.NewTextHandler(&log, nil)))
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, raiseBuffers) {
		t.Errorf("the log says %q", got)
	}
	log.Reset()
	enlarge(udp, 4096, slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() != 0 {
		t.Errorf("the log says %q", log.String())
	}
}
