// Package input reads files that users name: tokens, keys, certificates, models.
package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// patience limits the time to read a file.
const patience = 10 * time.Second

// retry is the interval at which a pipe without a writer is read again.
const retry = 20 * time.Millisecond

// Read reads a file of at most limit bytes, if check, which may be nil, accepts it. The file may be a pipe, as
// of a shell's <(command): Read waits for its content until ctx ends, but for at most 10 seconds. Errors do not contain the path.
func Read(ctx context.Context, path string, limit int, check func(fs.FileInfo) error) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it could not be read to its end within %v: if it is a pipe, its writer must write and close it, and only one process can read it", patience))
	defer cancel()
	info, err := os.Stat(path)
	switch { // To open some devices has effects.
	case err != nil:
		return nil, withoutPath(err)
	case info.IsDir():
		return nil, errors.New("it is a directory: name the file in it")
	case info.Mode()&fs.ModeDevice != 0:
		return nil, errors.New("it is a device, not a file or a pipe")
	case info.Mode()&fs.ModeSocket != 0:
		return nil, errors.New("it is a socket, not a file or a pipe")
	}
	f, err := os.OpenFile(path, readOnly, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	info, err = f.Stat()
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case check != nil:
		if err := check(info); err != nil {
			return nil, err
		}
	}
	// Without a deadline, as of a regular file, reads do not block.
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	for err == nil && len(b) == 0 && info.Mode()&fs.ModeNamedPipe != 0 && sleep(ctx, retry) {
		b, err = io.ReadAll(io.LimitReader(f, int64(limit)+1)) // It may have got a writer.
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, withoutPath(err)
	case len(b) > limit:
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return b, nil
}

// sleep reports whether d passed before the end of ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// withoutPath returns the cause of an error about a file, for callers that quote the path, which may hold
// characters that control a terminal.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
