package quic

import (
	"errors"
	"net"
)

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
	err := control(udp, func(fd int) error { ok = segments(fd); return nil })
	return ok && err == nil
}

// control calls f with the file descriptor of a socket.
func control(udp *net.UDPConn, f func(fd int) error) error {
	raw, err := udp.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) { failure = f(int(fd)) })
	return errors.Join(err, failure)
}
