package page

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// secretive returns a cluster with names that must not be seen without a ticket.
func secretive(context.Context) (trace.Cluster, error) {
	s := &trace.Snapshot{Node: "5ec4e7", Name: "secret-host:77", Size: 4711, Epoch: 1}
	return trace.Cluster{Formed: true, Epoch: 1, World: 4711, Joined: 4711, Nodes: []trace.Node{{Node: "5ec4e7", Name: s.Name, Snapshot: s}}}, nil
}

func ask(p http.Handler, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func TestWithoutTicket(t *testing.T) {
	var asked atomic.Int32
	p := New(NewKey("a token"), func(ctx context.Context) (trace.Cluster, error) { asked.Add(1); return secretive(ctx) })
	stale := p.key.session(time.Now().Add(-time.Second))
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
		for _, path := range []string{"/", "/events", "/page.js", "/page.css", "/index.html", "/ticket", "/ticket.html", "/nothing", "/../page.go"} {
			for _, cookie := range []string{"", "x", stale} {
				w := ask(p, method, path, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: p.key.cookie(), Value: cookie}) })
				if w.Code != http.StatusUnauthorized {
					t.Errorf("%s %s has the status %d, want 401", method, path, w.Code)
				}
				text := w.Body.String()
				for name, values := range w.Header() {
					text += name + strings.Join(values, "")
				}
				if match := regexp.MustCompile(`secret-host|4711|5ec4e7|rank|epoch`).FindString(text); match != "" {
					t.Errorf("%s %s says %q", method, path, match)
				}
			}
		}
	}
	if asked.Load() > 0 {
		t.Errorf("the seed was asked %d times for browsers without a ticket", asked.Load())
	}
}

func TestHeaders(t *testing.T) {
	p := New(NewKey("a token"), secretive)
	for _, value := range []string{"", p.key.session(time.Now().Add(time.Hour))} {
		w := ask(p, "GET", "/", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: p.key.cookie(), Value: value}) })
		policy := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("the policy %q lacks %q", policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %q", policy)
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}

// TestFilesNeedNoOtherHost: the page works offline, and needs nothing that its policy forbids.
func TestFilesNeedNoOtherHost(t *testing.T) {
	files, err := static.ReadDir("static")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		text, err := static.ReadFile("static/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte(`xmlns="http://www.w3.org/2000/svg"`), nil)
		if bad := regexp.MustCompile(`https?:|//[a-z]+\.|innerHTML|eval\(| style=| on[a-z]+=`).Find(text); bad != nil {
			t.Errorf("%s has %q", f.Name(), bad)
		}
	}
}

func post(p *Page, ticket, from string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/ticket", strings.NewReader(url.Values{"ticket": {ticket}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = from
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func TestEnter(t *testing.T) {
	p := New(NewKey("a token"), secretive)
	w := post(p, p.Ticket(), "192.0.2.1:5000", nil)
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("a ticket has the status %d and %d cookies", w.Code, len(cookies))
	}
	if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.MaxAge != 12*60*60 {
		t.Errorf("the cookie is %v", c)
	}
	if w := ask(p, "GET", "/", func(r *http.Request) { r.AddCookie(cookies[0]) }); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "page.js") {
		t.Errorf("with the cookie, / has the status %d", w.Code)
	}
	if w := ask(p, "PUT", "/", func(r *http.Request) { r.AddCookie(cookies[0]) }); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("PUT has the status %d", w.Code)
	}
	for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "http://evil.example"}} {
		if w := post(p, p.Ticket(), "192.0.2.1:5000", func(r *http.Request) { r.Header.Set(header[0], header[1]) }); w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
			t.Errorf("with %s a ticket has the status %d", header, w.Code)
		}
	}
	long := strings.Repeat("x", 1<<20)
	if w := post(p, long, "192.0.2.1:5000", nil); w.Code != http.StatusUnauthorized {
		t.Errorf("a long ticket has the status %d", w.Code)
	}
}

// TestMounted: the page works below any path.
func TestMounted(t *testing.T) {
	p := New(NewKey("a token"), secretive)
	mux := http.NewServeMux()
	mux.Handle("/cluster/", http.StripPrefix("/cluster", p))
	server := httptest.NewServer(mux)
	defer server.Close()
	r, err := http.PostForm(server.URL+"/cluster/ticket", url.Values{"ticket": {p.Ticket()}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	// The default client keeps no cookies, so that it sees the form again, at the right place.
	if got := r.Request.URL.Path; got != "/cluster/" || r.StatusCode != http.StatusUnauthorized {
		t.Errorf("after a ticket the browser is at %s with the status %d", got, r.StatusCode)
	}
}

// TestAttempts: a source that has shown many wrong tickets must wait, also with a valid one; others need not.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(NewKey("a token"), secretive)
		wrong := 0
		for post(p, "aaaa-bbbb-cccc-dddd", "192.0.2.1:5000", nil).Code == http.StatusUnauthorized {
			if wrong++; wrong > 100 {
				t.Fatal("a source can try any number of tickets")
			}
		}
		if wrong != 8 {
			t.Errorf("a source can try %d tickets at once, want 8", wrong)
		}
		if w := post(p, p.Ticket(), "192.0.2.1:5001", nil); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("another ticket of the source has the status %d", w.Code)
		}
		if w := post(p, p.Ticket(), "192.0.2.2:5000", nil); w.Code != http.StatusSeeOther {
			t.Errorf("a ticket of another source has the status %d", w.Code)
		}
		time.Sleep(10 * time.Second)
		if w := post(p, p.Ticket(), "192.0.2.1:5000", nil); w.Code != http.StatusSeeOther {
			t.Errorf("after ten seconds a ticket has the status %d", w.Code)
		}
	})
}

// A pipes is a listener of connections in memory, which work in fake time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipes) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// events sends a request for the stream over a new connection, with headers.
func (l *pipes) events(t *testing.T, p *Page, headers ...string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	l.conns <- theirs
	headers = append(headers, "Cookie: "+p.key.cookie()+"="+p.key.session(time.Now().Add(time.Hour)), "", "")
	if _, err := io.WriteString(ours, "GET /events HTTP/1.1\r\nHost: x\r\n"+strings.Join(headers, "\r\n")); err != nil {
		t.Fatal(err)
	}
	return ours
}

// TestViewers: 200 browsers share the polls of one. One that reads nothing is disconnected, and delays no other. Without browsers the
// seed is not asked.
func TestViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		p := New(NewKey("a token"), func(ctx context.Context) (trace.Cluster, error) {
			asked.Add(1)
			c, err := secretive(ctx)
			c.Epoch = uint64(asked.Load()) // Each answer differs.
			return c, err
		})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: p, ReadTimeout: time.Second, WriteTimeout: time.Second} // They do not end a stream.
		go server.Serve(l)
		time.Sleep(time.Minute)
		if n := asked.Load(); n != 0 {
			t.Errorf("without browsers the seed was asked %d times", n)
		}

		silent := l.events(t, p)
		var got [200]atomic.Int32
		var conns []net.Conn
		for i := range got {
			c := l.events(t, p)
			conns = append(conns, c)
			go func() {
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if strings.HasPrefix(lines.Text(), "data: ") {
						got[i].Add(1)
					}
				}
			}()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		polls := asked.Load()
		if polls < 5 || polls > 12 {
			t.Errorf("in 3 s the seed was asked %d times for 200 browsers, want about 10", polls)
		}
		for i := range got {
			if n := got[i].Load(); n < polls-1 {
				t.Errorf("browser %d has got %d messages of %d polls", i, n, polls)
			}
		}
		time.Sleep(writeMax)
		// It reads the first bytes; then the connection ends.
		silent.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, silent); err != nil {
			t.Errorf("the browser that reads nothing is connected: %v", err)
		}
		p.mu.Lock()
		if p.viewers != len(conns) {
			t.Errorf("%d browsers are served, want %d", p.viewers, len(conns))
		}
		p.mu.Unlock()

		for _, c := range conns {
			c.Close()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := asked.Load()
		time.Sleep(time.Minute)
		if n := asked.Load() - before; n != 0 {
			t.Errorf("after the browsers have gone, the seed was asked %d times", n)
		}
		p.Close()
		server.Close()
	})
}

// A counted connection counts the bytes that are read.
type counted struct {
	net.Conn
	n int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n += n
	return n, err
}

// TestPacked: a browser that reads gzip gets each message at once, the same one as others, in a fraction of the bytes.
func TestPacked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p := New(NewKey("a token"), func(context.Context) (c trace.Cluster, _ error) {
			asked++
			c = trace.Cluster{Formed: true, Epoch: 1, World: 100, Joined: 100}
			for rank := range 100 {
				id := fmt.Sprintf("%032x", rank+1)
				s := &trace.Snapshot{Node: id, Name: fmt.Sprintf("host:%d", rank), Rank: rank, Size: 100, Epoch: 1}
				s.Process.HeapBytes = uint64(asked+rank) << 20 // Each message has all ranks.
				c.Nodes = append(c.Nodes, trace.Node{Rank: rank, Node: id, Name: s.Name, Snapshot: s})
			}
			return c, nil
		})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: p}
		go server.Serve(l)
		var conns [2]*counted
		var lines [2]*bufio.Scanner
		for i, encoding := range []string{"gzip;q=0, identity", "deflate, gzip;q=0.5, br"} {
			conns[i] = &counted{Conn: l.events(t, p, "Accept-Encoding: "+encoding)}
			r, err := http.ReadResponse(bufio.NewReader(conns[i]), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			body := io.Reader(r.Body)
			if i == 1 {
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			lines[i] = bufio.NewScanner(body)
			lines[i].Buffer(nil, 1<<20)
		}
		for range 5 {
			var got [2]string
			for i := range lines {
				for lines[i].Scan() && !strings.HasPrefix(lines[i].Text(), "data: ") {
				}
				got[i] = lines[i].Text()
			}
			if got[0] != got[1] || !json.Valid([]byte(strings.TrimPrefix(got[1], "data: "))) {
				t.Fatalf("a browser that reads gzip gets %s, others %s", got[1], got[0])
			}
		}
		if conns[1].n > conns[0].n/5 {
			t.Errorf("with gzip %d bytes have arrived, without %d: want a fifth", conns[1].n, conns[0].n)
		}
		for _, c := range conns {
			c.Close()
		}
		p.Close()
		server.Close()
	})
}

// TestNoOldView: a browser that comes when another one has left for long, and one that comes before the seed has answered it, see no view of then.
func TestNoOldView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := New(NewKey("a token"), func(ctx context.Context) (trace.Cluster, error) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			return trace.Cluster{World: 1 + int(time.Since(began)/time.Hour)}, nil
		})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: p}
		go server.Serve(l)
		first := func(c net.Conn) string {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "data: ") {
					return regexp.MustCompile(`"World":\d+`).FindString(lines.Text())
				}
			}
			return ""
		}
		c := l.events(t, p)
		if got := first(c); got != `"World":1` {
			t.Errorf("the first browser sees %s, want 1", got)
		}
		c.Close()
		time.Sleep(time.Hour)
		early := l.events(t, p)
		defer early.Close()
		go io.Copy(io.Discard, early)
		time.Sleep(500 * time.Millisecond) // The seed is being asked.
		late := l.events(t, p)
		if got := first(late); got != `"World":2` {
			t.Errorf("a browser sees %s of an hour ago", got)
		}
		late.Close()
		p.Close()
		server.Close()
	})
}

// TestSlowBodies: a browser without a ticket that sends no body holds its connection for bodyTime.
func TestSlowBodies(t *testing.T) {
	for _, request := range []string{"POST /ticket", "POST /", "GET /events", "PUT /page.js"} {
		synctest.Test(t, func(t *testing.T) {
			l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
			server := &http.Server{Handler: New(NewKey("a token"), secretive)}
			defer server.Close()
			go server.Serve(l)
			ours, theirs := net.Pipe()
			defer ours.Close()
			l.conns <- theirs
			if _, err := io.WriteString(ours, request+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nticket"); err != nil {
				t.Fatal(err)
			}
			ours.SetReadDeadline(time.Now().Add(bodyTime + time.Second))
			if _, err := io.Copy(io.Discard, ours); err != nil {
				t.Errorf("%s: %v", request, err)
			}
		})
	}
}

// TestHeadOfEvents: a request for the headers of the stream ends.
func TestHeadOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(NewKey("a token"), secretive)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := ask(p, "HEAD", "/events", func(r *http.Request) {
			*r = *r.WithContext(ctx)
			r.AddCookie(&http.Cookie{Name: p.key.cookie(), Value: p.key.session(time.Now().Add(time.Hour))})
		})
		if ctx.Err() != nil {
			t.Errorf("the status is %d after a second", w.Code)
		}
	})
}

func TestTooManyViewers(t *testing.T) {
	p := New(NewKey("a token"), secretive)
	p.viewers = viewersMax
	w := ask(p, "GET", "/events", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: p.key.cookie(), Value: p.key.session(time.Now().Add(time.Hour))})
	})
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("one more viewer has the status %d, want 503", w.Code)
	}
}

// TestClose: streams end, so that a server can shut down.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(NewKey("a token"), secretive)
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		server := &http.Server{Handler: p}
		go server.Serve(l)
		c := l.events(t, p)
		go io.Copy(io.Discard, c)
		time.Sleep(time.Second)
		p.Close()
		p.Close()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		c.Close()
	})
}
