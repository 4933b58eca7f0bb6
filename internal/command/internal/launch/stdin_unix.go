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

// A feeder provides the standard input of a child. The child gets a file or pipe
// directly. It may not read a terminal, since its process group is not in the
// foreground: the feeder then copies the input of the terminal to a pipe.
type feeder struct {
	out     *os.File // read by the child
	in      *os.File // write end of out; nil without a terminal
	from    *os.File
	wake    *os.File // closing it ends the goroutine, which polls asleep
	asleep  *os.File
	copying sync.WaitGroup
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

// started begins to copy the input. The child has been started and has inherited out.
func (f *feeder) started() {
	if f == nil || f.in == nil {
		return
	}
	f.out.Close()
	f.copying.Go(f.copy)
}

// stop ends the copying and waits for its goroutine.
func (f *feeder) stop() {
	if f == nil || f.in == nil {
		return
	}
	f.wake.Close()
	f.in.Close() // interrupts a Write to a child that does not read
	f.copying.Wait()
	f.out.Close()
	f.asleep.Close()
}

func (f *feeder) copy() {
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
			// Reading would stop this process with SIGTTIN.
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

// backgroundPause is the interval at which a process in the background checks whether it
// is in the foreground.
const backgroundPause = 200 * time.Millisecond

func foreground(terminal int) bool {
	group, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
