// Package page serves a page that shows a cluster at work: the call and the state of each rank, its waits for others, and late ranks. The page needs
// no other host, and changes nothing in the cluster.
//
// A browser enters with a ticket, which [Key.Ticket] makes of the token of the cluster, and gets a cookie for 12 hours. Without it the
// page answers every request but that for its form with the status 401, and says nothing of the cluster.
package page

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/internal/page/model"
	"github.com/nexar-go/nexar/internal/page/poll"
	"github.com/nexar-go/nexar/trace"
)

//go:embed static
var static embed.FS

const (
	// viewersMax bounds the browsers that are served at a time.
	viewersMax = 256
	// writeMax limits the time to write a message. A browser that reads nothing is disconnected then.
	writeMax = 10 * time.Second
	// quietMax is the time after which a comment is sent, so that a browser that has gone is noticed.
	quietMax = 15 * time.Second
	// formMax bounds the request with the ticket, in bytes.
	formMax = 4 << 10
	// bodyTime limits the time until the body of a request has arrived, also one that is not read.
	bodyTime = 10 * time.Second
)

// attempts limits wrong tickets: of one source 8 in a short time, then one in 6 seconds. A ticket of 80 bits cannot be guessed so.
func attempts() *admission.Gate {
	return admission.NewGate(admission.Limits{Max: 64, Burst: 8, Interval: 6 * time.Second})
}

// A Page is the handler. Close ends its streams.
type Page struct {
	key     Key
	run     string // names this Page in the versions that browsers send back
	state   *state
	poller  poll.Poller
	gate    *admission.Gate
	protect *http.CrossOriginProtection
	done    chan struct{}

	mu      sync.Mutex
	viewers int
	closed  bool
}

// New returns a Page for the cluster that ask returns.
func New(key Key, ask func(context.Context) (trace.Cluster, error)) *Page {
	p := &Page{key: key, run: rand.Text(), state: newState(), gate: attempts(), protect: http.NewCrossOriginProtection(), done: make(chan struct{})}
	p.poller.Ask, p.poller.Show = ask, p.Show
	return p
}

// Ticket returns a ticket that is valid now.
func (p *Page) Ticket() string { return p.key.Ticket(time.Now()) }

// Close ends all streams.
func (p *Page) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
}

// Show shows a view to all browsers.
func (p *Page) Show(v model.View) { p.state.show(v) }

// ServeHTTP serves the page below the path at which it is mounted.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	for name, value := range map[string]string{
		"Cache-Control":                "no-store",
		"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
		"Referrer-Policy":              "same-origin",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
	} {
		head.Set(name, value)
	}
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case name == "ticket" && r.Method == http.MethodPost:
		p.enter(w, r)
	case !p.entered(r):
		p.form(w, r, http.StatusUnauthorized, "")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "this page only shows: use GET", http.StatusMethodNotAllowed)
	case name == "events" && r.Method == http.MethodGet:
		p.events(w, r)
	case name == "":
		file(w, r, "index.html")
	default:
		file(w, r, name)
	}
}

// file serves an embedded file.
func file(w http.ResponseWriter, r *http.Request, name string) {
	b, err := fs.ReadFile(static, "static/"+name)
	if err != nil || name == formFile {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	// Not by package mime, which asks the system.
	types := map[string]string{".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
	w.Header().Set("Content-Type", types[path.Ext(name)]+"; charset=utf-8")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(b)))
}

func (p *Page) entered(r *http.Request) bool {
	c, err := r.Cookie(p.key.cookie())
	return err == nil && p.key.checkSession(c.Value, time.Now())
}

// enter checks a ticket.
func (p *Page) enter(w http.ResponseWriter, r *http.Request) {
	if err := p.protect.Check(r); err != nil {
		p.form(w, r, http.StatusForbidden, "This form was sent by another site.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, formMax)
	ticket := r.PostFormValue("ticket")
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	attempt, err := p.gate.TryEnter(admission.SourceOf(addr.Addr()), true, func() {})
	if err != nil {
		w.Header().Set("Retry-After", "6")
		p.form(w, r, http.StatusTooManyRequests, "Too many wrong tickets: wait for six seconds.")
		return
	}
	now := time.Now()
	if !p.key.checkTicket(ticket, now) {
		attempt.Leave()
		p.form(w, r, http.StatusUnauthorized, "This ticket is not valid, or no longer.")
		return
	}
	attempt.Prove()
	http.SetCookie(w, &http.Cookie{Name: p.key.cookie(), Value: p.key.session(now.Add(sessionLife)), MaxAge: int(sessionLife / time.Second), HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	// Relative, since the page does not know the path at which it is mounted.
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// errFull is the answer to a viewer beyond viewersMax.
var errFull = errors.New("this page has as many viewers as it serves at a time: close another one")

// view adds a viewer. Its leave must be called.
func (p *Page) view() (leave func(), fresh <-chan struct{}, err error) {
	p.mu.Lock()
	isFull := p.viewers == viewersMax
	if !isFull {
		p.viewers++
	}
	p.mu.Unlock()
	if isFull {
		return nil, nil, errFull
	}
	fresh = p.poller.Enter() // It may wait for the end of a poll.
	return func() {
		p.poller.Leave()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.viewers--
	}, fresh, nil
}

// events streams the state to a browser, and then its changes.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	next := p.state.next()
	leave, fresh, err := p.view()
	if err != nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	out, err := newStream(w, r)
	if err != nil {
		return
	}
	select {
	case <-fresh:
	case <-next:
	case <-r.Context().Done():
		return
	case <-p.done:
		return
	}
	version := p.version(r.Header.Get("Last-Event-ID"))
	for {
		m, changed := p.state.since(version)
		if m.to > 0 {
			if out.send(fmt.Sprintf("id: %s.%d\ndata: {\"now\":%d,", p.run, m.to, time.Now().UnixMilli()), m) != nil {
				return
			}
			version = m.to
			continue
		}
		quiet := time.NewTimer(quietMax)
		select {
		case <-changed:
		case <-quiet.C:
			err = out.send(": the cluster is being asked\n\n", message{})
		case <-r.Context().Done():
			err = r.Context().Err()
		case <-p.done:
			err = http.ErrServerClosed
		}
		if quiet.Stop(); err != nil {
			return
		}
	}
}

// version returns the version of a browser that connects again, or 0.
func (p *Page) version(id string) uint64 {
	run, text, _ := strings.Cut(id, ".")
	version, err := strconv.ParseUint(text, 10, 64)
	if run != p.run || err != nil {
		return 0
	}
	return version
}

// A stream is the response to a browser. For one that reads gzip it is a gzip file without an end. Messages are compressed once for all browsers,
// the texts around them not at all.
type stream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	isPacked bool
}

// gzipHead begins a gzip file: RFC 1952, deflate, no flags, no time, unknown system.
const gzipHead = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// readsGzip reports whether an Accept-Encoding has gzip, with a quality above 0 if it has one.
func readsGzip(accept string) bool {
	for e := range strings.SplitSeq(accept, ",") {
		coding, quality, _ := strings.Cut(e, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			return quality == "" || strings.Trim(quality, " q=0.") != ""
		}
	}
	return false
}

// newStream begins the response.
func newStream(w http.ResponseWriter, r *http.Request) (*stream, error) {
	s := &stream{w, http.NewResponseController(w), readsGzip(r.Header.Get("Accept-Encoding"))}
	w.Header().Set("Content-Type", "text/event-stream")
	if s.isPacked {
		w.Header().Set("Content-Encoding", "gzip")
		if _, err := io.WriteString(w, gzipHead); err != nil {
			return nil, err
		}
	}
	return s, s.send("retry: 500\n\n", message{})
}

// send sends a text, which is short, and, if there is a message, that and the brace that ends it.
func (s *stream) send(text string, m message) error {
	// Writers without deadlines, such as those of tests, have none.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeMax))
	parts := [][]byte{s.short(text)}
	if m.to > 0 && s.isPacked {
		parts = append(parts, m.packed(), s.short("}\n\n"))
	} else if m.to > 0 {
		parts = append(parts, m.data, s.short("}\n\n"))
	}
	for _, b := range parts {
		if _, err := s.w.Write(b); err != nil {
			return err
		}
	}
	return s.control.Flush()
}

// short returns a short text, in a packed stream as a block without compression (RFC 1951).
func (s *stream) short(text string) []byte {
	if !s.isPacked {
		return []byte(text)
	}
	b := binary.LittleEndian.AppendUint16([]byte{0}, uint16(len(text)))
	return append(binary.LittleEndian.AppendUint16(b, ^uint16(len(text))), text...)
}
