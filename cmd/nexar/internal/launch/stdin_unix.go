//go:build unix

package launch

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A feeder gives a child its standard input. A file or pipe the child gets
// itself. A terminal it may not read, since its process group is not in the
// foreground; there the feeder reads and passes on what is typed.
type feeder struct {
	out     *os.File // the child's
	in      *os.File // what is passed on is written here; nil without a terminal
	from    *os.File
	wake    *os.File // closing it ends the goroutine, which polls asleep
	asleep  *os.File
	passing sync.WaitGroup
}

func feed(stdin *os.File) (*feeder, error) {
	if !term.IsTerminal(int(stdin.Fd())) {
		return &feeder{out: stdin}, nil
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	asleep, wake, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close(), in.Close())
	}
	return &feeder{out: out, in: in, from: stdin, wake: wake, asleep: asleep}, nil
}

// started begins to pass on what is typed, once the child has its end.
func (f *feeder) started() {
	if f == nil || f.in == nil {
		return
	}
	f.out.Close()
	f.passing.Go(f.pass)
}

// stop ends the passing on and waits for it.
func (f *feeder) stop() {
	if f == nil || f.in == nil {
		return
	}
	f.wake.Close()
	f.in.Close() // a Write to a child that does not read returns
	f.passing.Wait()
	f.out.Close()
	f.asleep.Close()
}

func (f *feeder) pass() {
	defer f.in.Close()
	buf := make([]byte, 4096)
	for {
		terminal, asleep := int32(f.from.Fd()), int32(f.asleep.Fd())
		ready := []unix.PollFd{{Fd: terminal, Events: unix.POLLIN}, {Fd: asleep, Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); err != nil && err != unix.EINTR {
			return
		}
		if ready[1].Revents != 0 {
			return
		}
		if ready[0].Revents == 0 {
			continue
		}
		if !foreground(int(terminal)) {
			// Reading would stop this process: what is typed is the shell's.
			only := ready[1:]
			_, _ = unix.Poll(only, int(backgroundPause/time.Millisecond))
			continue
		}
		n, err := f.from.Read(buf)
		if err != nil {
			return
		}
		if _, err := f.in.Write(buf[:n]); err != nil {
			return
		}
	}
}

// backgroundPause is how often a process in the background looks whether it
// has come to the foreground.
const backgroundPause = 200 * time.Millisecond

func foreground(terminal int) bool {
	group, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
