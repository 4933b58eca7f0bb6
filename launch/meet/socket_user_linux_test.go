package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/launch"
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

func says(text string) func() []byte { return func() []byte { return []byte(text) } }

// announces is the value of a process with a seed at an address.
func announces(addr string) func() []byte { return says(fmt.Sprintf(`[{"Seeds":[%q]}]`, addr)) }

// collected returns the address that a process gets from that of seed 0.
func collected(t *testing.T) (addr string) {
	all, err := ofThisHost(t, 1).collect(t.Context(), 1)
	if err != nil {
		t.Error(err)
		return ""
	}
	return all[0].Seeds[0]
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
		_, err := Meet(t.Context(), ofThisHost(t, rank).Process, Options{NewToken: func() string { return "secret" }, Start: func(context.Context, Seed) (string, error) { return "h:1", nil }})
		if !errors.Is(err, errUser) || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: error %v, want %q", rank, err, want)
		}
	}
}

// A process of another user gets no announcement.
func TestSocketAskedByAnotherUser(t *testing.T) {
	p := ofThisHost(t, 0)
	stop, err := p.serve(0, says("secret"), func() bool { return false })
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
	if _, err := p.collect(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
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
		stop, serveErr := p.serve(0, announces("second"), func() bool { return false })
		if err = errors.Join(err, serveErr); err != nil {
			t.Error(err)
			stop = func() {}
		}
		conn.Close()
		next <- stop
	}()
	addr := collected(t)
	(<-next)()
	if addr != "second" {
		t.Errorf("got %q, want the address of the second process", addr)
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
	if _, err := ofThisHost(t, 1).collect(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want that of the context and %q", err, want)
	}
}

// Jobs of two users with the same name do not meet.
func TestSocketsOfTwoUsers(t *testing.T) {
	p := ofThisHost(t, 0)
	stop, err := p.serve(0, says("secret"), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	asNobody(t, func() error {
		stop, err := p.serve(0, says("secret of nobody"), func() bool { return false })
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
	stop, err := p.serve(0, announces("first"), decided.Load)
	if err != nil {
		t.Fatal(err)
	}
	if addr := collected(t); addr != "first" {
		t.Errorf("got %q, want the first address", addr)
	}
	decided.Store(true)
	if value, err := p.ask(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "needs no further process") {
		t.Errorf("got %q, %v, want an error that says that the world is decided", value, err)
	}
	next := make(chan string)
	go func() {
		next <- collected(t)
	}()
	stop()
	stop, err = p.serve(0, announces("second"), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if addr := <-next; addr != "second" {
		t.Errorf("got %q, want the address of the next world", addr)
	}
}

// The announcement of a process ends when no answer is in progress any more.
func TestAnswersEndBeforeTheAnnouncement(t *testing.T) {
	p := ofThisHost(t, 0)
	asked, answer := make(chan struct{}), make(chan struct{})
	stop, err := p.serve(0, says("secret"), func() bool {
		close(asked)
		<-answer
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	var answering atomic.Bool
	answering.Store(true)
	got := make(chan string)
	go func() {
		value, _ := p.ask(t.Context(), 0)
		got <- value
	}()
	<-asked
	stopped := make(chan bool)
	go func() {
		stop()
		stopped <- answering.Load()
	}()
	time.Sleep(20 * time.Millisecond) // Without a wait, stop returns by then.
	answering.Store(false)
	close(answer)
	if <-stopped {
		t.Error("the announcement has ended during an answer")
	}
	if value := <-got; value != "secret" {
		t.Errorf("got %q, want the value", value)
	}
}

// Three processes run seeds. That of rank 0 has ended when rank 3 asks: the others tell its announcement.
func TestOthersTellAnAnnouncement(t *testing.T) {
	ofThisHost := func(rank int) launch.Process {
		p := ofThisHost(t, rank).Process
		p.Size, p.LocalSize = 4, 4
		return p
	}
	options := func() Options {
		return Options{Seeds: 3, Token: "secret", Start: func(_ context.Context, s Seed) (string, error) { return s.Listen, s.State.Close() }}
	}
	worlds, errs := make([]World, 3), make([]error, 3)
	var all sync.WaitGroup
	for rank := range worlds {
		all.Go(func() { worlds[rank], errs[rank] = Meet(t.Context(), ofThisHost(rank), options()) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	worlds[0].Release()
	last, err := Meet(t.Context(), ofThisHost(3), options())
	if err != nil || !slices.Equal(last.Seeds, worlds[1].Seeds) {
		t.Errorf("rank 3 has met at %v, %v, want %v", last.Seeds, err, worlds[1].Seeds)
	}
	worlds[1].Release()
	worlds[2].Release()
	two := options()
	two.Seeds = 1
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop, err := process{ofThisHost(0)}.serve(0, says(`[{"Rank":0,"Seeds":["a"]},{"Rank":1,"Seeds":["b"]},{"Rank":2,"Seeds":["c"]}]`), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := Meet(ctx, ofThisHost(3), two); err == nil || !strings.Contains(err.Error(), "rank 0 expects 3 seeds, and this one 1: set NEXAR_LAUNCH_SEEDS to the same number on all ranks") {
		t.Errorf("error %v, want that the ranks expect different numbers of seeds", err)
	}
}

// A process that cannot agree with the others ends its announcement.
func TestNoAnnouncementAfterAnError(t *testing.T) {
	stop, err := process{ofThisHost(t, 1).Process}.serve(1, says(`[{"Rank":1,"Size":9,"Seeds":["b"]}]`), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	third, err := process{ofThisHost(t, 1).Process}.serve(2, says(`[{"Rank":2,"Size":3,"Seeds":["c"]}]`), func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	defer third()
	p := ofThisHost(t, 0)
	p.Size, p.LocalSize = 3, 3
	if _, err := Meet(t.Context(), p.Process, Options{Seeds: 3, Token: "secret"}); !errors.Is(err, launch.ErrLaunch) || !strings.Contains(err.Error(), "rank 1 has been told that the world has 9 processes") {
		t.Errorf("error %v, want that the sizes differ", err)
	}
	again, err := p.serve(0, says("x"), func() bool { return false })
	if err != nil {
		t.Fatalf("the announcement has not ended: %v", err)
	}
	again()
}
