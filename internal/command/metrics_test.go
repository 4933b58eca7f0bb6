package command

import (
	"bytes"
	"errors"
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

// A one is a listener with one connection.
type one struct {
	conn chan net.Conn
	net.Listener
}

func (l one) Accept() (net.Conn, error) {
	if c, ok := <-l.conn; ok {
		return c, nil
	}
	return nil, errors.New("no more connections")
}

func (l one) Close() error { return nil }

// TestSlowScrape: a client that sends no body holds its connection for requestTime.
func TestSlowScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		l := one{conn: make(chan net.Conn, 1)}
		l.conn <- theirs
		close(l.conn)
		server := metricsServer(http.NotFoundHandler())
		defer server.Close()
		go server.Serve(l)
		if _, err := io.WriteString(ours, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		ours.SetReadDeadline(time.Now().Add(requestTime + time.Second))
		if _, err := io.Copy(io.Discard, ours); err != nil {
			t.Error(err)
		}
	})
}
