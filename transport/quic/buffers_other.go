//go:build !unix

package quic

import "net"

const raiseBuffers = ""

// forceBuffers assumes that the system has set the requested size.
func forceBuffers(_ *net.UDPConn, bytes int) (read, write int, err error) {
	return bytes, bytes, nil
}
