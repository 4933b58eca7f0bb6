//go:build !unix

package quic

import "net"

const raiseBuffers = ""

// forceBuffers trusts that the system has set what it was asked for.
func forceBuffers(_ *net.UDPConn, bytes int) (read, write int, err error) {
	return bytes, bytes, nil
}
