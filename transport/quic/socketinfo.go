package quic

import "net"

// SocketInfo describes the socket that the system gives an Endpoint.
type SocketInfo struct {
	ReadBuffer, WriteBuffer int    // bytes; 0 if unknown
	WantedBuffer            int    // recommended size of each
	Raise                   string // the command that allows larger buffers; empty if unknown
	GSO                     bool   // the system segments large sends
	Watched                 bool   // peers can watch this process over TCP
}

// Socket returns the properties of the socket.
func (e *Endpoint) Socket() SocketInfo {
	info := SocketInfo{WantedBuffer: bufferBytes, Raise: raiseBuffers, Watched: e.watch != nil}
	if s, ok := e.packets.(*socket); ok {
		info.ReadBuffer, info.WriteBuffer, _ = forceBuffers(s.UDPConn, bufferBytes)
		info.GSO = hasGSO(s.UDPConn)
	}
	return info
}

// hasGSO asks the system as quic-go does.
func hasGSO(udp *net.UDPConn) (ok bool) {
	raw, err := udp.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { ok = segments(fd) })
	return ok && err == nil
}
