//go:build unix

package input

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const limit = 1024

// pipe makes a named pipe.
func pipe(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A pipe that nobody writes is an error after some seconds.
func TestPipeWithoutWriter(t *testing.T) {
	path := pipe(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b, err := Read(t.Context(), path, limit, nil)
		if err == nil || !strings.Contains(err.Error(), "its writer must write and close it") {
			t.Errorf("got %q and error %v, want one about the writer", b, err)
		}
		if took := time.Since(began); took != patience {
			t.Errorf("the error came after %v, want %v", took, patience)
		}
	})
}

// A pipe is read to its end, also if its writer writes late and in parts.
func TestPipe(t *testing.T) {
	path := pipe(t)
	written := make(chan error, 1)
	go func() {
		time.Sleep(2 * retry) // Read has opened the pipe, most likely, and found it empty.
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		for _, part := range []string{"one ", "two ", "three"} {
			if err == nil {
				time.Sleep(time.Millisecond)
				_, err = f.WriteString(part)
			}
		}
		written <- errors.Join(err, f.Close())
	}()
	b, err := Read(t.Context(), path, limit, nil)
	if err != nil || string(b) != "one two three" {
		t.Errorf("got %q, %v", b, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// The end of the context ends the wait for a writer that does not write.
func TestCancel(t *testing.T) {
	path := pipe(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("a part"); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the caller has no time")
	ctx, cancel := context.WithCancelCause(t.Context())
	b, err := Read(ctx, path, limit, func(fs.FileInfo) error {
		time.AfterFunc(retry, func() { cancel(cause) })
		return nil
	})
	if !errors.Is(err, cause) {
		t.Errorf("got %q and error %v, want %v", b, err, cause)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, make([]byte, limit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refusal := errors.New("the mode is wrong")
	refuse := func(fs.FileInfo) error { return refusal }
	for _, test := range []struct {
		path  string
		limit int
		check func(fs.FileInfo) error
		want  string
	}{
		{file, limit, nil, "more than 1024 bytes"},
		{file, limit + 1, refuse, refusal.Error()},
		{pipe(t), limit, refuse, refusal.Error()},
		{dir, limit, refuse, "it is a directory"},
		{"/dev/zero", limit, refuse, "it is a device, not a file or a pipe"},
		{"/dev/null", limit, refuse, "it is a device, not a file or a pipe"},
		{socket, limit, refuse, "it is a socket, not a file or a pipe"},
		{filepath.Join(dir, "missing"), limit, nil, syscall.ENOENT.Error()},
	} {
		_, err := Read(t.Context(), test.path, test.limit, test.check)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got error %v, want %q without the path", test.path, err, test.want)
		}
	}
	if b, err := Read(t.Context(), file, limit+1, nil); err != nil || len(b) != limit+1 {
		t.Errorf("a file of the limit: %d bytes, error %v", len(b), err)
	}
}
