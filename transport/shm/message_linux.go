package shm

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// A message is a message on the socket of a conn, with the files attached to it. The kernel
// preserves the boundaries of messages (SOCK_SEQPACKET).
type message struct {
	text  []byte
	files []int
}

const (
	// messageBytesMax is the length of the longest message, a hello.
	messageBytesMax = 1 << 10
	// filesMax is the largest number of files of a message: an eventfd and the areas.
	filesMax = 2
)

var errMessage = errors.New("its message is too large")

// sendMessage sends a message. Its files stay open.
func sendMessage(sock *net.UnixConn, text []byte, files ...int) error {
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	_, _, err := sock.WriteMsgUnix(text, rights, nil)
	return err
}

// trySendMessage is sendMessage without blocking.
func trySendMessage(sock *net.UnixConn, text []byte) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, sent = unix.SendmsgN(int(fd), text, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return errors.Join(err, sent)
}

// A messageReader receives messages.
type messageReader struct {
	sock   *net.UnixConn
	text   [messageBytesMax]byte
	rights [64]byte // has room for more than filesMax
}

// next receives a message. Its text is valid until the next call. The caller closes its
// files.
func (p *messageReader) next() (message, error) {
	l, err := p.receive()
	if errors.Is(err, unix.ECONNRESET) {
		// The peer has closed the socket before it had read all messages of this side.
		// Its last messages are still there.
		l, err = p.receive()
	}
	if err == nil && len(l.files) > filesMax {
		err = fmt.Errorf("%w: it has %d files, want at most %d", errMessage, len(l.files), filesMax)
	}
	if err != nil {
		l.close()
		return message{}, err
	}
	return l, nil
}

// receive receives a message. It returns the files also with an error.
func (p *messageReader) receive() (l message, err error) {
	n, m, flags, _, err := p.sock.ReadMsgUnix(p.text[:], p.rights[:])
	l.text = p.text[:max(n, 0)] // -1 for some errors
	var rightsErr error
	l.files, rightsErr = parseRights(p.rights[:max(m, 0)])
	switch {
	case err != nil:
		return l, err
	case flags&unix.MSG_TRUNC != 0:
		return l, errMessage
	case flags&unix.MSG_CTRUNC != 0:
		return l, fmt.Errorf("%w: this process cannot open more files", errMessage)
	}
	return l, rightsErr
}

// close closes the files of a message.
func (l *message) close() {
	for _, fd := range l.files {
		unix.Close(fd)
	}
	l.files = nil
}

func parseRights(b []byte) (files []int, err error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		files = append(files, fds...)
	}
	return files, nil
}
