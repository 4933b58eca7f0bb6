package command

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
)

// TestMetricsShutdown: a scrape in progress ends when the server stops, and says that no seed has answered.
func TestMetricsShutdown(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var out bytes.Buffer
	stop, err := serveMetrics(&out, "test", "0", nexar.Config{Seeds: []string{silent.Addr().String()}, Token: nexar.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	addr := regexp.MustCompile(`http://.*`).FindString(out.String())
	answers := make(chan string, 1)
	go func() {
		r, err := http.Get(addr)
		if err != nil {
			answers <- err.Error()
			return
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		answers <- r.Status + "\n" + string(b)
	}()
	c, err := silent.Accept() // The scrape asks the seed.
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop()
	if text := <-answers; !strings.HasPrefix(text, "200 OK\n") || !strings.Contains(text, "\nnexar_cluster_up 0\n") {
		t.Errorf("the answer is %s", text)
	}
	if answer, err := http.Get(addr); err == nil {
		answer.Body.Close()
		t.Error("the server still answers")
	}
}

// TestMetricsOfRestartedSeed: scrapes have an answer while the seed has gone, and show the cluster again when it is back.
func TestMetricsOfRestartedSeed(t *testing.T) {
	cfg := nexar.SeedConfig{Listen: "127.0.0.1:0", World: 3, Token: nexar.NewToken()}
	start := func() *nexar.Seed {
		t.Helper()
		seed, err := nexar.StartSeed(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Listen = seed.Addr()
		return seed
	}
	seed := start()
	var out bytes.Buffer
	stop, err := serveMetrics(&out, "test", "0", nexar.Config{Seeds: []string{seed.Addr()}, Token: cfg.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	addr := regexp.MustCompile(`http://.*`).FindString(out.String())
	check := func(when string, lines ...string) {
		t.Helper()
		r, err := http.Get(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", when, r.Status, err)
		}
		for _, line := range lines {
			if !strings.Contains(string(text), "\n"+line+"\n") {
				t.Errorf("%s: no line %q in\n%s", when, line, text)
			}
		}
		if n := strings.Count(string(text), "\nnexar_"); len(lines) == 1 && n != 1 {
			t.Errorf("%s: %d metrics, want 1", when, n)
		}
	}
	check("at first", "nexar_cluster_up 1", "nexar_cluster_wanted_nodes 3")
	seed.Close()
	check("without a seed", "nexar_cluster_up 0")
	seed = start()
	defer seed.Close()
	check("with a new seed", "nexar_cluster_up 1", "nexar_cluster_wanted_nodes 3")
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn chan net.Conn
	net.Listener
}

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l oneConn) Close() error   { close(l.conn); return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowClients: a client that sends no whole request, or reads no answer, is disconnected.
func TestSlowClients(t *testing.T) {
	for name, request := range map[string]string{
		"half a header":     "GET / HTTP/1.1\r\nHost:",
		"half a body":       "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf",
		"no read of answer": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			l := oneConn{conn: make(chan net.Conn, 1)}
			l.conn <- theirs
			stop := serveHTTP(io.Discard, "test", "nothing", l, http.NotFoundHandler(), func() {})
			if _, err := io.WriteString(ours, request); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "half") {
				go io.Copy(io.Discard, ours)
			}
			time.Sleep(3 * time.Minute / 2)
			synctest.Wait()
			if _, err := ours.Write([]byte("x")); err == nil {
				t.Errorf("%s: the client is still connected", name)
			}
			stop()
		})
	}
}
