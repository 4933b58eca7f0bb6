package shm

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// A letter is one message on the socket of a conn, with the files that come
// with it. The kernel keeps letters apart and delivers each as a whole.
type letter struct {
	text  []byte
	files []int
}

const (
	// letterBytesMax bounds what a letter says: a hello is the longest.
	letterBytesMax = 1 << 10
	// filesMax is how many files a letter brings: a bell and an area.
	filesMax = 2
)

var errLetter = errors.New("a letter that is too large")

// post sends a letter. It keeps its files.
func post(sock *net.UnixConn, text []byte, files ...int) error {
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	_, _, err := sock.WriteMsgUnix(text, rights, nil)
	return err
}

// postNow is post without ever blocking.
func postNow(sock *net.UnixConn, text []byte) error {
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

// A postbox receives letters.
type postbox struct {
	sock   *net.UnixConn
	text   [letterBytesMax]byte
	rights [64]byte // more than what filesMax need
}

// next receives a letter, whose text is valid until the next one. The caller
// closes its files.
func (p *postbox) next() (letter, error) {
	l, err := p.receive()
	if errors.Is(err, unix.ECONNRESET) {
		// The peer has closed without having read all our letters. Its own
		// last ones are still there.
		l, err = p.receive()
	}
	if err == nil && len(l.files) > filesMax {
		err = fmt.Errorf("%w: it has %d files", errLetter, len(l.files))
	}
	if err != nil {
		l.drop()
		return letter{}, err
	}
	return l, nil
}

// receive returns the files that came even with an error.
func (p *postbox) receive() (l letter, err error) {
	n, m, flags, _, err := p.sock.ReadMsgUnix(p.text[:], p.rights[:])
	l.text = p.text[:max(n, 0)] // -1 for some errors
	var rightsErr error
	l.files, rightsErr = parseRights(p.rights[:max(m, 0)])
	switch {
	case err != nil:
		return l, err
	case flags&unix.MSG_TRUNC != 0:
		return l, errLetter
	case flags&unix.MSG_CTRUNC != 0:
		return l, fmt.Errorf("%w: it has more files than this process may open", errLetter)
	}
	return l, rightsErr
}

// drop closes the files of a letter.
func (l *letter) drop() {
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
