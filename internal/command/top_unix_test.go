//go:build unix

package command

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/nexar-go/nexar"
)

// A terminal emulates a terminal of 80 columns and 24 lines for a command.
type terminal struct {
	*vt.SafeEmulator
	keys, tty *os.File
	status    chan int
}

// newTerminal runs a command on a terminal.
func newTerminal(t *testing.T, args ...string) *terminal {
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	s := &terminal{vt.NewSafeEmulator(80, 24), keys, tty, make(chan int, 1)}
	var copying sync.WaitGroup
	copying.Go(func() { io.Copy(s, keys) })
	copying.Go(func() { io.Copy(keys, s) }) // answers of the terminal
	go func() { s.status <- execute(Hardware{}, args, tty, tty, tty) }()
	t.Cleanup(func() {
		tty.Close()
		keys.Close()
		s.Close()
		copying.Wait()
	})
	return s
}

// shows waits until the terminal shows all texts.
func (s *terminal) shows(t *testing.T, texts ...string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		screen, missing := s.String(), ""
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
			}
		}
		switch {
		case missing == "":
			return
		case time.Now().After(deadline):
			t.Fatalf("the terminal does not show %q:\n%s", missing, screen)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestTop: one of two ranks waits in a barrier. On a terminal the sentence names the late rank; keys select sections; q restores the
// terminal.
func TestTop(t *testing.T) {
	token := nexar.NewToken()
	t.Setenv("NEXAR_CLUSTER_TOKEN", token)
	t.Setenv("TERM", "xterm-256color")
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	var running sync.WaitGroup
	defer running.Wait()
	late, joined := make(chan struct{}), make(chan struct{}, 2)
	defer close(late)
	for range 2 {
		running.Go(func() {
			node, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, Token: token})
			joined <- struct{}{}
			if err != nil {
				t.Error(err)
				return
			}
			defer node.Close()
			if node.World().Rank() == 1 {
				<-late
			}
			if err := node.World().Barrier(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	<-joined
	<-joined
	s := newTerminal(t, "top", "--seed", seed.Addr())
	s.shows(t, "rank 1", "barrier #1", "2 of 2 ranks", " late ", " waits ")
	io.WriteString(s.keys, "2")
	s.shows(t, "rank 0 wait in barrier #1 for rank 1")
	io.WriteString(s.keys, "?")
	s.shows(t, "another section")
	io.WriteString(s.keys, "q")
	if status := <-s.status; status != 0 {
		t.Errorf("after q the exit status is %d, want 0", status)
	}
	for deadline := time.Now().Add(20 * time.Second); s.IsAltScreen(); time.Sleep(time.Millisecond) { // until its last bytes have arrived
		if time.Now().After(deadline) {
			t.Fatal("the terminal still shows the screen of nexar top")
		}
	}
}

// TestTopOfRestartedSeed: nexar top says since when the seed does not answer, and goes on with the next one.
func TestTopOfRestartedSeed(t *testing.T) {
	cfg := nexar.SeedConfig{Listen: "127.0.0.1:0", World: 3, Token: nexar.NewToken()}
	t.Setenv("NEXAR_CLUSTER_TOKEN", cfg.Token)
	t.Setenv("TERM", "xterm-256color")
	seed, err := nexar.StartSeed(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := newTerminal(t, "top", "--seed", seed.Addr())
	s.shows(t, "The world forms: 0 of 3 have joined")
	cfg.Listen, cfg.World = seed.Addr(), 5
	seed.Close()
	s.shows(t, "The seed does not answer; below is its last answer.", "no seed could be reached", "0 of 3 ranks")
	if seed, err = nexar.StartSeed(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	s.shows(t, "The world forms: 0 of 5 have joined")
	io.WriteString(s.keys, "q")
	if status := <-s.status; status != 0 {
		t.Errorf("after q the exit status is %d, want 0", status)
	}
}

// TestTopWithoutTerminal: the error names the command for scripts, and a wrong token is an error on a plain screen.
func TestTopWithoutTerminal(t *testing.T) {
	var b strings.Builder
	if status := execute(Hardware{}, []string{"top", "--seed", "127.0.0.1:1"}, os.Stdin, &b, &b); status != 1 || !strings.Contains(b.String(), "nexar status") {
		t.Errorf("status %d: %s", status, b.String())
	}
	t.Setenv("NEXAR_CLUSTER_TOKEN", nexar.NewToken())
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, Token: nexar.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	s := newTerminal(t, "top", "--seed", seed.Addr())
	if status := <-s.status; status != 1 {
		t.Errorf("status %d, want 1", status)
	}
	s.shows(t, "wrong cluster token")
}
