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
)

const (
	// healthTimeout bounds a request for the health of a seed.
	healthTimeout = 5 * time.Second
	// healthConnsMax and healthBytesMax bound the requests in progress, and the length of one.
	healthConnsMax = 16
	healthBytesMax = 8 << 10
)

// A healthServer answers HTTP/1.1 requests of GET and HEAD for the state of a seed:
// 200 if all is well, and 503 with the reason if not. It closes the connection after each answer.
// It uses no net/http, which would be linked into every program that can join a cluster.
type healthServer struct {
	listener net.Listener
	checks   map[string]func() error // by path
	conns    chan struct{}           // a token for each request in progress
	wg       sync.WaitGroup
}

func serveHealth(addr string, checks map[string]func() error) (*healthServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("health address %q: %w", addr, err)
	}
	h := &healthServer{listener: l, checks: checks, conns: make(chan struct{}, healthConnsMax)}
	h.wg.Go(h.acceptAll)
	return h, nil
}

func (h *healthServer) acceptAll() {
	for {
		h.conns <- struct{}{}
		c, err := h.listener.Accept()
		if err != nil {
			<-h.conns
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(100 * time.Millisecond) // as when the process has no more file descriptors
			continue
		}
		h.wg.Go(func() {
			h.answer(c)
			<-h.conns
		})
	}
}

func (h *healthServer) answer(c net.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(healthTimeout))
	r := bufio.NewReader(io.LimitReader(c, healthBytesMax))
	request, err := r.ReadString('\n')
	for line := request; err == nil && strings.TrimRight(line, "\r\n") != ""; {
		line, err = r.ReadString('\n')
	}
	if err != nil {
		return
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
	fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", status, len(text))
	if method != "HEAD" {
		_, _ = io.WriteString(c, text)
	}
}

func (h *healthServer) addr() string { return h.listener.Addr().String() }

// close ends the server. It waits for requests in progress, for at most healthTimeout.
func (h *healthServer) close() error {
	err := h.listener.Close()
	h.wg.Wait()
	return err
}
