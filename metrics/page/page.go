// Package page shows a cluster in a browser: the call and the state of each rank, its waits for others, and late ranks. "nexar seed --http" and
// "nexar run --http" serve the same page without a line in the program.
//
//	h, err := page.New(nexar.Config{})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/cluster/", http.StripPrefix("/cluster", h))
//
// The page asks a seed for the state of the cluster as long as a browser shows it, about every half second and less often
// if that takes long. All browsers share the answers. It changes nothing in the cluster and loads nothing from other hosts.
//
// A browser enters with a ticket, a text that is valid for 10 to 20 minutes and is made of the token of the cluster: by "nexar ticket"
// or [Handler.Ticket]. It gets a cookie for 12 hours. Without one, all paths have the status 401. Cookies and tickets pass over
// the network as the page does, so listen on a loopback address, or use TLS.
package page

import (
	"net/http"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/page"
)

// A Handler is an [http.Handler] for the page. It works below any path if [http.StripPrefix] removes that.
type Handler struct{ page *page.Page }

// New returns a Handler for the cluster that [nexar.QueryCluster] would ask with cfg. A program that a launcher has started
// needs Seeds, and a Token of [nexar.JobToken].
func New(cfg nexar.Config) (*Handler, error) {
	p, err := page.OfCluster(cfg)
	if err != nil {
		return nil, err
	}
	return &Handler{p}, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.page.ServeHTTP(w, r) }

// Ticket returns a ticket that is valid now. Do not log it.
func (h *Handler) Ticket() string { return h.page.Ticket() }

// Close ends the connections of browsers that show the page, which [http.Server.Shutdown] would wait for:
//
//	server.RegisterOnShutdown(h.Close)
func (h *Handler) Close() { h.page.Close() }
