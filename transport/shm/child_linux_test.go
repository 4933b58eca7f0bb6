package shm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// childEnv makes the test binary a node of another process. Its value is the configuration as
// JSON.
const childEnv = "NEXAR_SHM_TEST_CHILD"

// orders are the commands to a child.
type orders struct {
	Task     string // one of the tasks of childMain
	Cluster  string
	Node     string
	Dial     string // the node to dial, or "" to accept all
	AreaSize int
	SpinMax  time.Duration // -1: no spinning
}

// childMain carries out the orders until standard input ends.
func childMain() {
	var o orders
	check(json.Unmarshal([]byte(os.Getenv(childEnv)), &o))
	switch o.Task {
	case "otherUser":
		otherUser(o)
		return
	case "attachedArea":
		attachedArea(o)
		return
	}
	task := map[string]func(transport.Conn){"echo": echo, "poll": pollEcho, "flood": flood, "area": shareArea}[o.Task]
	tr, err := New(Config{Cluster: o.Cluster, Node: o.Node, AreaSize: o.AreaSize})
	check(err)
	if o.SpinMax != 0 {
		tr.(*endpoint).spinMax = o.SpinMax
	}
	if o.Dial != "" {
		c, err := tr.Dial(context.Background(), o.Dial, o.Dial)
		check(err)
		go task(c)
	}
	go func() {
		for {
			c, err := tr.Accept(context.Background())
			if err != nil {
				return // the end of the process
			}
			go task(c)
		}
	}()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	check(tr.Close())
}

// echo returns all bytes of a pipe on another one.
func echo(c transport.Conn) {
	eachPipe(c, func(r transport.Receiver, s transport.Sender) { io.Copy(s, r) })
}

// pollEcho is echo by polling.
func pollEcho(c transport.Conn) {
	eachPipe(c, func(r transport.Receiver, s transport.Sender) {
		p, try := transport.CapabilitiesOf(r).Poller, transport.CapabilitiesOf(s).TryWriter
		p.SetPolling(true)
		defer p.SetPolling(false)
		buf := make([]byte, 128<<10)
		for {
			n, err := p.TryRead(buf)
			if err != nil {
				return
			}
			for n > 0 && !try.TryWrite(buf[:n]) {
			}
		}
	})
}

// flood reads a pipe, and fills another pipe with zeros.
func flood(c transport.Conn) {
	eachPipe(c, func(r transport.Receiver, s transport.Sender) {
		go func() {
			zeros := make([]byte, 1<<20)
			for {
				if _, err := s.Write(zeros); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, 8<<20)
		for {
			if _, err := io.ReadFull(r, buf); err != nil {
				return
			}
		}
	})
}

// eachPipe answers each pipe with another one.
func eachPipe(c transport.Conn, serve func(transport.Receiver, transport.Sender)) {
	for {
		r, err := c.AcceptPipe(context.Background())
		if err != nil {
			return
		}
		s, err := c.OpenPipe(context.Background())
		if err != nil {
			return
		}
		go serve(r, s)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// say prints an error on a line.
func say(err error) { fmt.Println(strings.ReplaceAll(fmt.Sprint(err), "\n", " ")) }

// A child is a node of another process.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// startChild returns when the child is ready. It is killed with the test.
func startChild(tb testing.TB, o orders) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	ch := launch(tb, cmd, o)
	if got := ch.line(); got != "ready" {
		tb.Fatalf("the child prints %q", got)
	}
	return ch
}

// launch starts the command with orders in its environment.
func launch(tb testing.TB, cmd *exec.Cmd, o orders) *child {
	tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ch := &child{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	tb.Cleanup(ch.kill)
	return ch
}

// line is the next line that the child prints.
func (ch *child) line() string {
	ch.lines.Scan()
	return strings.TrimSpace(ch.lines.Text())
}

// kill ends the child as kill -9 does, and waits for it.
func (ch *child) kill() {
	ch.cmd.Process.Kill()
	ch.cmd.Wait()
}

// exit ends the child regularly.
func (ch *child) exit(tb testing.TB) {
	tb.Helper()
	ch.stdin.Close()
	if err := ch.cmd.Wait(); err != nil {
		tb.Errorf("the child ends with %v", err)
	}
}
