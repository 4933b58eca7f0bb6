package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
)

// formFile is the form for the ticket. It has its style in itself, since a browser gets no other file without a ticket.
const formFile = "ticket.html"

// form answers with the form for the ticket, below its path, or else with the status alone.
func (p *Page) form(w http.ResponseWriter, r *http.Request, status int, problem string) {
	if r.URL.Path != "/" && r.URL.Path != "" && r.URL.Path != "/ticket" {
		http.Error(w, "a ticket is needed", status)
		return
	}
	text, err := static.ReadFile("static/" + formFile)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, style, _ := bytes.Cut(text, []byte("<style>"))
	style, _, _ = bytes.Cut(style, []byte("</style>"))
	sum := sha256.Sum256(style)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	if problem != "" {
		problem = `<p role="alert">` + html.EscapeString(problem) + "</p>"
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(bytes.Replace(text, []byte("<!-- problem -->"), []byte(problem), 1))
}
