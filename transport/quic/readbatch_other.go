//go:build !(darwin || freebsd || linux)

package quic

import "net"

// A batchReader is only used on Unix. Elsewhere quic-go reads the socket and refuses
// clients itself, which costs more per packet of a flood.
type batchReader struct{}

func newBatchReader(*net.UDPConn) batchReader { return batchReader{} }
