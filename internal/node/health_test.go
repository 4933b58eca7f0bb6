package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/require"
)

func get(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func TestHealthServer(t *testing.T) {
	h, err := serveHealth("127.0.0.1:0", map[string]func() error{
		"/healthz": func() error { return nil },
		"/readyz":  func() error { return errors.New("no seed leads") },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	for _, test := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"HEAD", "/healthz", 200, ""},
		{"GET", "/healthz?verbose", 200, "ok"},
		{"GET", "/readyz", 503, "no seed leads"},
		{"GET", "/", 404, "/healthz"},
		{"POST", "/healthz", 405, "GET"},
	} {
		if status, body := get(t, test.method, "http://"+h.addr()+test.path); status != test.status || !strings.Contains(body, test.body) {
			t.Errorf("%s %s: status %d, body %q, want %d and %q", test.method, test.path, status, body, test.status, test.body)
		}
	}
	// A request that is too long, or none, gets no answer and holds nothing.
	c, err := net.Dial("tcp", h.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, "GET /"+strings.Repeat("x", 2*healthBytesMax))
	if b, _ := io.ReadAll(c); len(b) > 0 {
		t.Errorf("a long request is answered with %q", b)
	}
}

// A client that opens 1,000 connections a second and sends no request does not keep the probes of another
// address waiting.
func TestHealthFlood(t *testing.T) {
	require.Have(t, "loopback", runtime.GOOS == "linux", "only Linux has several addresses of loopback")
	h, err := serveHealth("127.0.0.1:0", map[string]func() error{"/healthz": func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	flood, end := context.WithCancel(t.Context())
	var attacker sync.WaitGroup
	defer attacker.Wait()
	defer end()
	full := make(chan struct{}) // closed when the attacker has opened 1,000 connections
	attacker.Go(func() { openIdle(flood, h.addr(), full) })
	select {
	case <-full:
	case <-time.After(time.Minute):
		t.Fatal("the attacker has not opened 1,000 connections in a minute")
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}).DialContext,
	}}
	// A busy machine makes a probe slow. The fault makes all of them slow.
	var slow error
	for range 5 {
		slow = nil
		for range 5 {
			r, err := client.Get("http://" + h.addr() + "/healthz")
			if err != nil {
				slow = err
				continue
			}
			r.Body.Close()
		}
		if slow == nil {
			return
		}
	}
	t.Errorf("in 5 attempts at least one of 5 probes had no answer within a second: %v", slow)
}

// openIdle opens 1,000 connections a second from another address of loopback. It holds the last 2,000.
func openIdle(ctx context.Context, addr string, full chan<- struct{}) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for opened := 0; ctx.Err() == nil; opened++ {
		if opened == 1000 {
			close(full)
		}
		<-tick.C
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		if held = append(held, c); len(held) > 2000 {
			held[0].Close()
			held = held[1:]
		}
	}
}

// A seed is ready as long as it leads a world.
func TestSeedHealth(t *testing.T) {
	s, err := StartSeed(SeedConfig{Listen: "127.0.0.1:0", Transports: Transports{Names: BuiltIn()}, Token: pki.NewToken(), World: 1, Health: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + s.HealthAddr()
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := get(t, "GET", url+path); status != 200 {
			t.Errorf("%s: status %d, body %q, want 200", path, status, body)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.HealthAddr()); err == nil {
		t.Error("a closed seed still listens for health requests")
	}
	if _, err := StartSeed(SeedConfig{Listen: "127.0.0.1:0", Transports: Transports{Names: BuiltIn()}, World: 1, Health: "127.0.0.1:70000"}); err == nil || !strings.Contains(err.Error(), `health address "127.0.0.1:70000"`) {
		t.Errorf("health address without a port: error %v", err)
	}
}
