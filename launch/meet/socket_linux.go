package meet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// hasSockets reports whether processes of one host can exchange values over a socket.
const hasSockets = true

const (
	// valueMax bounds the length of an announcement in bytes.
	valueMax = 64 << 10
	// socketTimeout bounds the exchange with a process that has accepted a connection.
	socketTimeout = 5 * time.Second
)

// socket is the name of the socket of a process that runs a seed. It is abstract: it has the same reach as a loopback address, and ends with
// its process. Processes of other users could use or claim it, so both sides check the user of the other.
func (p process) socket(seed int) *net.UnixAddr {
	job := sha256.Sum256([]byte(p.Job))
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@nexar-%d-%x-%d", os.Geteuid(), job[:16], seed)}
}

// decidedValue takes the place of the value of a process whose world is decided. It is no announcement.
const decidedValue = "decided"

// serve gives the current value to each process of this user that asks, until it is stopped. Processes that ask when the world is decided belong to the next one
// of the same job, and ask again.
func (p process) serve(seed int, value func() []byte, decided func() bool) (stop func(), err error) {
	listener, err := net.ListenUnix("unix", p.socket(seed))
	if errors.Is(err, syscall.EADDRINUSE) {
		conn, pid, dialErr := p.dial(seed)
		if dialErr != nil {
			return nil, errors.Join(dialErr, err)
		}
		conn.Close()
		return nil, fmt.Errorf("process %d of this host says that it is the one of job %s that runs seed %d: two processes have the same rank, or an earlier run of the job has not ended: %w", pid, p.job(), seed, err)
	}
	if err != nil {
		return nil, err
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				if _, err := sameUser(conn); err == nil {
					_ = conn.SetDeadline(time.Now().Add(socketTimeout))
					answer := value()
					if decided() {
						answer = []byte(decidedValue)
					}
					_, _ = conn.Write(answer)
				}
			})
		}
	})
	return sync.OnceFunc(func() {
		listener.Close()
		served.Wait()
	}), nil
}

// ask returns the value of the process that runs a seed.
func (p process) ask(ctx context.Context, seed int) (string, error) {
	conn, pid, err := p.dial(seed)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(socketTimeout))
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	value, err := io.ReadAll(io.LimitReader(conn, valueMax))
	if err != nil || len(value) == 0 {
		return "", fmt.Errorf("process %d does not answer: %w", pid, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	if string(value) == decidedValue {
		return "", fmt.Errorf("the world of process %d needs no further process, and it has not joined another", pid)
	}
	return string(value), nil
}

// dial connects to the process that runs a seed and returns its number.
func (p process) dial(seed int) (conn *net.UnixConn, pid int, err error) {
	if conn, err = net.DialUnix("unix", nil, p.socket(seed)); err != nil {
		return nil, 0, fmt.Errorf("no process of this host answers: %w", err)
	}
	if pid, err = sameUser(conn); err != nil {
		conn.Close()
		return nil, 0, err
	}
	return conn, pid, nil
}

// sameUser returns the number of the process at the other end, and an error unless it belongs to the user of this process.
func sameUser(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *syscall.Ucred
	if controlErr := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); controlErr != nil {
		return 0, controlErr
	}
	if err != nil {
		return 0, err
	}
	if int(peer.Uid) != os.Geteuid() { // SO_PEERCRED is the effective user.
		return 0, fmt.Errorf("%w: process %d of user %d has it, expected one of user %d: end that process, or set NEXAR_JOB to another name on all ranks", errUser, peer.Pid, peer.Uid, os.Geteuid())
	}
	return int(peer.Pid), nil
}
