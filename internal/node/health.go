package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
)

const (
	// healthTimeout limits the time until a request has arrived, and then the time until its answer is written.
	healthTimeout = time.Second
	// healthBytesMax is the maximum length of a request.
	healthBytesMax = 8 << 10
)

// A healthServer answers HTTP/1.1 requests of GET and HEAD for the state of a seed:
// 200 if all is well, and 503 with the reason if not. It closes the connection after each answer.
// It uses no net/http, which would be linked into every program that can join a cluster.
//
// Anyone may connect. The admission divides the connections among their sources, so that one source
// does not keep the probes of others out. An answered request is the proof of a connection.
type healthServer struct {
	listener  net.Listener
	checks    map[string]func() error // by path
	admission *admission.Gate
	wg        sync.WaitGroup
}

func serveHealth(addr string, checks map[string]func() error) (*healthServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("health address %q: %w", addr, err)
	}
	h := &healthServer{listener: l, checks: checks, admission: admission.NewGate(admission.Limits{})}
	h.wg.Go(h.acceptAll)
	return h, nil
}

func (h *healthServer) acceptAll() {
	for {
		c, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // as when the process has no more file descriptors
			continue
		}
		// A wait for room would let other sources wait in the kernel, behind those of a source that floods.
		ticket, err := h.admission.TryEnter(admission.SourceOfPeer(c), true, func() { admission.Reset(c) })
		if err != nil {
			admission.Reset(c)
			continue
		}
		h.wg.Go(func() {
			defer ticket.Leave()
			defer c.Close()
			if h.answer(c) == nil {
				ticket.Prove()
			}
		})
	}
}

// answer reads a request and answers it. The error is that of the connection.
func (h *healthServer) answer(c net.Conn) error {
	c.SetDeadline(time.Now().Add(healthTimeout))
	r := bufio.NewReader(io.LimitReader(c, healthBytesMax))
	request, err := r.ReadString('\n')
	for line := request; err == nil && strings.TrimRight(line, "\r\n") != ""; {
		line, err = r.ReadString('\n')
	}
	if err != nil {
		return err
	}
	method, rest, _ := strings.Cut(request, " ")
	path, _, _ := strings.Cut(rest, " ")
	path, _, _ = strings.Cut(path, "?")
	status, text := "200 OK", "ok\n"
	check, known := h.checks[path]
	switch {
	case method != "GET" && method != "HEAD":
		status, text = "405 Method Not Allowed", "want GET or HEAD\n"
	case !known:
		status, text = "404 Not Found", "want /healthz or /readyz\n"
	default:
		if err := check(); err != nil {
			status, text = "503 Service Unavailable", err.Error()+"\n"
		}
	}
	body := text
	if method == "HEAD" {
		body = ""
	}
	c.SetDeadline(time.Now().Add(healthTimeout))
	_, err = fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(text), body)
	return err
}

func (h *healthServer) addr() string { return h.listener.Addr().String() }

// close ends the server. It waits for requests in progress, for at most two healthTimeouts.
func (h *healthServer) close() error {
	err := h.listener.Close()
	h.wg.Wait()
	return err
}
