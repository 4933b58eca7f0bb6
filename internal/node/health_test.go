package node

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
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
