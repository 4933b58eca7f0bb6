package quic

import "net"

// SocketInfo says what the system gives the socket of an Endpoint.
type SocketInfo struct {
	ReadBuffer, WriteBuffer int    // bytes; 0 if the system does not say
	WantedBuffer            int    // what each should be
	Raise                   string // the command that allows more; empty if unknown
	GSO                     bool   // the system cuts large sends into packets
	Watched                 bool   // peers can watch this process over TCP
}

// Socket says what the system gives the socket.
func (e *Endpoint) Socket() SocketInfo {
	info := SocketInfo{WantedBuffer: bufferBytes, Raise: raiseBuffers, Watched: e.watch != nil}
	if s, ok := e.packets.(*socket); ok {
		info.ReadBuffer, info.WriteBuffer, _ = forceBuffers(s.UDPConn, bufferBytes)
		info.GSO = hasGSO(s.UDPConn)
	}
	return info
}

// hasGSO asks the system in the way that quic-go does.
func hasGSO(udp *net.UDPConn) (ok bool) {
	raw, err := udp.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) { ok = segments(fd) })
	return ok && err == nil
}
