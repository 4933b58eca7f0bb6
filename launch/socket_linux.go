package launch

import (
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
	// pause is the time between two attempts to reach a process that may not have started yet.
	pause = 50 * time.Millisecond
	// socketTimeout bounds the exchange with a process that has accepted a connection.
	socketTimeout = 5 * time.Second
)

// socket is the name of the socket of a process that runs a seed. It is abstract: it has the same reach as a loopback address, and ends with
// its process. Processes of other users could use or claim it, so both sides check the user of the other.
func (p Process) socket(seed int) *net.UnixAddr {
	job := sha256.Sum256([]byte(p.Job))
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@nexar-%d-%x-%d", os.Geteuid(), job[:16], seed)}
}

// serve gives a value to each process of this user that asks, until it is stopped.
func (p Process) serve(seed int, value []byte) (stop func(), err error) {
	listener, err := net.ListenUnix("unix", p.socket(seed))
	if errors.Is(err, syscall.EADDRINUSE) {
		if _, asked := p.ask(seed); errors.Is(asked, errUser) {
			return nil, asked
		}
		return nil, fmt.Errorf("another process of this host says that it is the one of job %s that runs seed %d: two processes have the same rank, or an earlier run of the job has not ended: %w", p.Job, seed, err)
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
				if checkUser(conn) == nil {
					_ = conn.SetDeadline(time.Now().Add(socketTimeout))
					_, _ = conn.Write(value)
				}
			})
		}
	})
	return sync.OnceFunc(func() {
		listener.Close()
		served.Wait()
	}), nil
}

// fetch returns the value of the process that runs a seed. It waits for that process until ctx ends.
func (p Process) fetch(ctx context.Context, seed int) (string, error) {
	for {
		value, err := p.ask(seed)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EAGAIN) { // EAGAIN: too many processes ask at a time.
			return value, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", fmt.Errorf("no process of this host answers: %w: %w", err, context.Cause(ctx))
		}
	}
}

// ask is a single attempt of fetch.
func (p Process) ask(seed int) (string, error) {
	conn, err := net.DialUnix("unix", nil, p.socket(seed))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := checkUser(conn); err != nil {
		return "", err
	}
	_ = conn.SetDeadline(time.Now().Add(socketTimeout))
	value, err := io.ReadAll(io.LimitReader(conn, valueMax))
	return string(value), err
}

// errUser is the error of a socket of another user.
var errUser = errors.New("the socket of this user's job belongs to another user")

// checkUser returns an error unless the process at the other end belongs to the user of this process.
func checkUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	if controlErr := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); controlErr != nil {
		return controlErr
	}
	if err != nil {
		return err
	}
	if int(peer.Uid) != os.Geteuid() { // SO_PEERCRED is the effective user.
		return fmt.Errorf("%w: process %d of user %d has it, expected one of user %d: end that process, or set NEXAR_JOB to another name on all ranks", errUser, peer.Pid, peer.Uid, os.Geteuid())
	}
	return nil
}
