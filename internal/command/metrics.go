package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/metrics"
	"github.com/nexar-go/nexar/trace"
)

// metricsUsage is the usage of --metrics.
const metricsUsage = "`address` at which Prometheus reads the metrics of all nodes, at /metrics: a port for this host alone, or host:port (default: none)"

// httpAddr returns the address to listen at for a value of a flag, which may be empty. A port alone is one of the loopback interface.
func httpAddr(flag, value string) (string, error) {
	addr := value
	if !strings.Contains(addr, ":") {
		addr = ":" + addr
	}
	if value != "" && !isListenAddr(addr) {
		return "", usagef("%s %q: want a port, or host:port", flag, value)
	}
	if strings.HasPrefix(addr, ":") {
		addr = "127.0.0.1" + addr
	}
	return addr, nil
}

// listenHTTP listens at the value of a flag.
func listenHTTP(flag, value string) (net.Listener, error) {
	addr, err := httpAddr(flag, value)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: %w: choose another port, or 0 for any free one", flag, value, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", flag, value, err)
	}
	return l, nil
}

// urlOf returns the URL of a listener for other hosts, if it listens for them.
func urlOf(addr *net.TCPAddr) string {
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host, _ = os.Hostname()
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(addr.Port)) + "/"
}

const (
	// scrapeWait is the time for a node to answer.
	scrapeWait = time.Second
	// httpGrace is the time for requests in progress to end when a server closes.
	httpGrace = time.Second
)

// newServer returns a server that ends requests and answers that are not read or sent in time. Streams set their own deadlines.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
}

// serveHTTP serves a handler until stop, which first calls cancel to end the requests in progress. Errors name the handler by what.
func serveHTTP(w io.Writer, title, what string, l net.Listener, h http.Handler, cancel func()) (stop func()) {
	server := newServer(h)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintf(w, "%s: %s cannot be served any longer: %v\n", title, what, err)
		}
	})
	return func() {
		cancel()
		ctx, done := context.WithTimeout(context.Background(), httpGrace)
		defer done()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		serving.Wait()
	}
}

// serveMetrics serves the metrics of the cluster of cfg at the value of --metrics until stop, and prints the address. A scrape in progress then
// shows that no seed answers.
func serveMetrics(w io.Writer, title, value string, cfg nexar.Config) (stop func(), err error) {
	l, err := listenHTTP("--metrics", value)
	if err != nil {
		return nil, err
	}
	querying, cancel := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics.ClusterHandler(func(ctx context.Context) (trace.Cluster, error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(querying, stop)()
		return nexar.ClusterQuery{Wait: scrapeWait}.Query(ctx, cfg)
	}))
	fmt.Fprintf(w, "%s: metrics: %smetrics\n", title, urlOf(l.Addr().(*net.TCPAddr)))
	return serveHTTP(w, title, "metrics", l, mux, cancel), nil
}
