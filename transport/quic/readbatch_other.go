//go:build !(darwin || freebsd || linux)

package quic

import "net"

// A batchReader is of no use here: quic-go reads the socket itself, and refuses clients
// itself.
type batchReader struct{}

func newBatchReader(*net.UDPConn) batchReader { return batchReader{} }
