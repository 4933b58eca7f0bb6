package page_test

import (
	"bufio"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/metrics/page"
)

// TestHandler: a program serves the page of its own cluster.
func TestHandler(t *testing.T) {
	token := nexar.NewToken()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	cfg := nexar.Config{Seeds: []string{seed.Addr()}, Token: token, Listen: "127.0.0.1:0"}
	node, err := nexar.Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()

	h, err := page.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/cluster/", http.StripPrefix("/cluster", h))
	server := httptest.NewServer(mux)
	defer server.Close()
	defer h.Close()

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	for path, want := range map[string]int{"/cluster/events": http.StatusUnauthorized, "/cluster/page.js": http.StatusUnauthorized} {
		r, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != want {
			t.Errorf("without a ticket %s has the status %d, want %d", path, r.StatusCode, want)
		}
	}
	r, err := client.PostForm(server.URL+"/cluster/ticket", url.Values{"ticket": {h.Ticket()}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Body.Close(); r.StatusCode != http.StatusOK {
		t.Fatalf("a ticket has the status %d", r.StatusCode)
	}
	if r, err = client.Get(server.URL + "/cluster/events"); err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") {
			if !strings.Contains(lines.Text(), "The only rank works") {
				t.Errorf("the page says %s", lines.Text())
			}
			return
		}
	}
	t.Error("the page says nothing")
}

func TestNewWithBadToken(t *testing.T) {
	if _, err := page.New(nexar.Config{TokenFile: "/nonexistent/token"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/token") {
		t.Errorf("the error is %v, want one with the path", err)
	}
}
