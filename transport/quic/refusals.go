package quic

import (
	"log/slog"
	"sync"
	"time"
)

// refusalsEvery is the shortest time between two log lines about refused connections.
const refusalsEvery = 10 * time.Second

// refusals logs refused connections, but not each one: a flood must not fill the log.
type refusals struct {
	log *slog.Logger

	mu     sync.Mutex
	logged time.Time
	count  int // since then
}

func (r *refusals) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	if now := time.Now(); now.Sub(r.logged) >= refusalsEvery {
		r.log.Warn("quic: refusing unauthenticated connections", "refused", r.count, "last", err)
		r.logged, r.count = now, 0
	}
}
