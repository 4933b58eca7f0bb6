package tcp

import (
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A recordedSock records its writes.
type recordedSock struct {
	socket
	writes []string
	fail   error
}

func (s *recordedSock) Write(p []byte) (int, error) {
	s.writes = append(s.writes, string(p))
	return len(p), s.fail
}

func (s *recordedSock) Read(p []byte) (int, error) { return copy(p, "answer"), nil }

// TestFlight checks that writes are sent together before each read and at the end, and
// directly afterwards.
func TestFlight(t *testing.T) {
	sock := &recordedSock{}
	f := newFlight(sock, "magic ")
	write := func(text string) {
		t.Helper()
		if n, err := f.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	read := func() {
		t.Helper()
		if n, err := f.Read(make([]byte, 10)); n != 6 || err != nil {
			t.Fatalf("Read = %d, %v", n, err)
		}
	}
	write("hello")
	read()
	read()
	write("finished ")
	write("claim")
	read()
	write("yes")
	if err := f.end(); err != nil {
		t.Fatal(err)
	}
	write("data")
	write("more")
	if want := []string{"magic hello", "finished claim", "yes", "data", "more"}; !slices.Equal(sock.writes, want) {
		t.Errorf("sent %q, want %q", sock.writes, want)
	}
	failing := newFlight(&recordedSock{fail: net.ErrClosed}, "magic")
	if _, err := failing.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read after a failed write: %v", err)
	}
}

// A deadlineSocket is a socket that records its deadline.
type deadlineSocket struct {
	socket
	deadline time.Time
}

func (s *deadlineSocket) Write(p []byte) (int, error)   { return len(p), nil }
func (s *deadlineSocket) SetDeadline(t time.Time) error { s.deadline = t; return nil }

// TestHandshakeProgress: the limit of a handshake counts from the last flight, unless the handshake was abandoned.
func TestHandshakeProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 * time.Second
		s, abandoned := &deadlineSocket{}, false
		f := newFlight(s, "first")
		f.limit, f.over = limit, func() bool { return abandoned }
		for range 4 {
			time.Sleep(limit - time.Second)
			f.Write([]byte("flight"))
			if err := f.flush(); err != nil || time.Until(s.deadline) != limit {
				t.Fatalf("after a flight %v are left (error %v), want %v", time.Until(s.deadline), err, limit)
			}
		}
		time.Sleep(time.Second)
		if f.flush(); time.Until(s.deadline) != limit-time.Second {
			t.Errorf("%v are left without another flight, want %v", time.Until(s.deadline), limit-time.Second)
		}
		abandoned = true
		f.Write([]byte("flight"))
		if f.flush(); !s.deadline.Equal(past()) {
			t.Errorf("the deadline of an abandoned handshake is %v, want %v", s.deadline, past())
		}
	})
}
