package tcp

import (
	"errors"
	"net"
	"slices"
	"testing"
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
