package command

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

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
	if _, err := http.Get(addr); err == nil {
		t.Error("the server still answers")
	}
}
