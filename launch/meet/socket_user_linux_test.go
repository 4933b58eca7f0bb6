package meet

import (
	"context"
	"errors"
	"fmt"
	"github.com/nexar-go/nexar/launch"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// asNobody calls f on a thread of the user 65534, which then ends.
func asNobody(t *testing.T, f func() error) {
	t.Helper()
	require.Root(t)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			result <- errno
			return
		}
		result <- f()
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

func ofThisHost(t *testing.T, rank int) process {
	return process{launch.Process{Launcher: launch.Torchrun, Job: fmt.Sprint(t.Name(), os.Getpid()), Rank: rank, Size: 2, LocalRank: rank, LocalSize: 2, Hosts: []string{"localhost"}}}
}

// A process of another user that has claimed the socket of a job is an error of all ranks that names it.
func TestSocketClaimedByAnotherUser(t *testing.T) {
	addr := ofThisHost(t, 0).socket(0)
	asNobody(t, func() error {
		l, err := net.ListenUnix("unix", addr)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	want := fmt.Sprintf("process %d of user 65534 has it, expected one of user 0", os.Getpid())
	for rank := range 2 {
		_, err := Meet(t.Context(), ofThisHost(t, rank).Process, Options{NewToken: func() string { return "secret" }, Start: func(context.Context, Seed) (int, error) { return 1, nil }})
		if !errors.Is(err, errUser) || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: error %v, want %q", rank, err, want)
		}
	}
}

// A process of another user gets no announcement.
func TestSocketAskedByAnotherUser(t *testing.T) {
	p := ofThisHost(t, 0)
	stop, err := p.serve(0, []byte("secret"), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	addr := p.socket(0)
	asNobody(t, func() error {
		conn, err := net.DialUnix("unix", nil, addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if got, err := io.ReadAll(conn); len(got) > 0 || err != nil {
			return fmt.Errorf("got %q, %w, want nothing", got, err)
		}
		return nil
	})
	if value, err := p.ask(t.Context(), 0); value != "secret" {
		t.Errorf("the same user gets %q, %v", value, err)
	}
}

// A process that asks while many others do asks again.
func TestSocketIsBusy(t *testing.T) {
	p := ofThisHost(t, 1)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: p.socket(0).Name}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := net.DialUnix("unix", nil, p.socket(0))
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.fetch(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that it asks until the end of the context", err)
	}
}

// A process that ends before it has answered is followed by another one, which answers.
func TestSocketAfterBrokenAnswer(t *testing.T) {
	p := ofThisHost(t, 0)
	first, err := net.ListenUnix("unix", p.socket(0))
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan func(), 1)
	go func() {
		conn, err := first.Accept()
		err = errors.Join(err, first.Close())
		stop, serveErr := p.serve(0, []byte("secret"), func() bool { return false })
		if err = errors.Join(err, serveErr); err != nil {
			t.Error(err)
			stop = func() {}
		}
		conn.Close()
		next <- stop
	}()
	value, err := ofThisHost(t, 1).fetch(t.Context(), 0)
	(<-next)()
	if value != "secret" || err != nil {
		t.Errorf("got %q, %v, want the value of the second process", value, err)
	}
}

// The error names a process that accepts connections, but does not answer, as if it were stopped.
func TestSocketSilent(t *testing.T) {
	listener, err := net.ListenUnix("unix", ofThisHost(t, 0).socket(0))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	want := fmt.Sprintf("process %d does not answer", os.Getpid())
	if _, err := ofThisHost(t, 1).fetch(ctx, 0); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want that of the context and %q", err, want)
	}
}

// Jobs of two users with the same name do not meet.
func TestSocketsOfTwoUsers(t *testing.T) {
	p := ofThisHost(t, 0)
	stop, err := p.serve(0, []byte("secret"), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	asNobody(t, func() error {
		stop, err := p.serve(0, []byte("secret of nobody"), func() bool { return false })
		if err == nil {
			stop()
		}
		return err
	})
}

// TestDecidedWorldIsNotJoined: a process that asks when the world is decided gets the value of the next world.
func TestDecidedWorldIsNotJoined(t *testing.T) {
	p := ofThisHost(t, 0)
	var decided atomic.Bool
	stop, err := p.serve(0, []byte("first"), decided.Load)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := p.fetch(t.Context(), 0); value != "first" || err != nil {
		t.Errorf("got %q, %v, want the first value", value, err)
	}
	decided.Store(true)
	if value, err := p.ask(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "needs no further process") {
		t.Errorf("got %q, %v, want an error that says that the world is decided", value, err)
	}
	next := make(chan string)
	go func() {
		value, _ := p.fetch(t.Context(), 0)
		next <- value
	}()
	stop()
	stop, err = p.serve(0, []byte("second"), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if value := <-next; value != "second" {
		t.Errorf("got %q, want the value of the next world", value)
	}
}
