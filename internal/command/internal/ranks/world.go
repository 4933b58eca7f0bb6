package ranks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar"
)

// A world is a seed in this process for a cluster of this host. The nil *world is a cluster
// with its seed elsewhere; its methods report nothing.
type world struct {
	seed   *nexar.Seed
	addr   string
	token  string
	made   bool // the token is a new one
	size   int
	joined atomic.Int32 // nodes that have joined and not gone
	most   atomic.Int32 // the largest value of joined so far
	nodes  sync.Map     // from the text of the nexar.NodeID to the number of the process that it was

	abandoning sync.WaitGroup
}

func startWorld(ctx context.Context, cfg Config) (*world, error) {
	w := &world{token: cfg.Token, size: cfg.Count}
	if w.token == "" {
		w.token, w.made = nexar.NewToken(), true
	}
	var log *slog.Logger // nil: warnings, or as NEXAR_LOG says
	if !cfg.Elastic && os.Getenv("NEXAR_LOG") == "" {
		// All nodes are processes whose ends launch.Run reports, with the reason.
		log = slog.New(slog.NewTextHandler(cfg.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	}
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: "127.0.0.1:0", World: w.size, Token: w.token, Log: log,
		Elastic: cfg.Elastic, ElasticMin: cfg.Min, ElasticMax: cfg.Max,
		Progress: func(e nexar.SeedEvent) {
			if e.Forming != "" {
				fmt.Fprintf(cfg.Stderr, "%s: %s (for %v)\n", cfg.Title, e.Forming, e.Waited)
				return
			}
			w.note(e)
		},
	})
	if err != nil {
		return nil, err
	}
	w.seed, w.addr = seed, seed.Addr()
	return w, nil
}

// note takes an event of the seed.
func (w *world) note(e nexar.SeedEvent) {
	if int(w.most.Load()) < w.size { // At first nodes have the ranks of their processes. Later ones are not of these processes.
		w.nodes.LoadOrStore(e.Node.String(), e.Rank)
	}
	w.joined.Store(int32(e.Joined))
	w.most.Store(max(w.most.Load(), int32(e.Joined)))
}

// printCommands prints the commands to add ranks and to query the cluster, if it is elastic or
// its token was given. It prints no token: other users of the host can see command lines.
func (w *world) printCommands(cfg Config) (err error) {
	token := ""
	if w.made && cfg.Elastic {
		if token, err = cfg.tokenFile.option(); err != nil {
			return err
		}
	}
	if cfg.Elastic {
		fmt.Fprintf(cfg.Stderr, "%s: to add a rank: %snexar run --elastic --seed %s -- PROGRAM\n", cfg.Title, token, w.addr)
	}
	if cfg.Elastic || !w.made && !cfg.FirstOnly {
		fmt.Fprintf(cfg.Stderr, "%s: to show the operations of the ranks: %snexar status --seed %s\n", cfg.Title, token, w.addr)
	}
	return nil
}

// shellQuote returns a word for a shell that means text.
func shellQuote(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func (w *world) close() {
	w.abandoning.Wait()
	w.seed.Close()
}

// formed reports whether the world has formed. The seed knows it before any node.
func (w *world) formed() bool {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return w.seed.Wait(now) == nil
}

// endedEarly returns an error if a process has exited with status 0 while others wait for the
// world, which can no longer form.
func (w *world) endedEarly(int) error {
	if w == nil || w.joined.Load() == 0 || w.formed() {
		return nil
	}
	return fmt.Errorf("exited with status 0 before the world had formed: %d of %d processes had joined, and wait in vain", w.joined.Load(), w.size)
}

// cause returns the process that an error of package nexar names, as in "rank 2 (node 6e1bb89bc7b87348c5ee8fadc8255e5b at
// 127.0.0.1:38021)". The number of the rank may be one of a smaller communicator.
func (w *world) cause(text string) (process int, ok bool) {
	if w == nil {
		return 0, false
	}
	_, text, _ = strings.Cut(text, "(node ")
	id, _, _ := strings.Cut(text, " ")
	n, _ := w.nodes.Load(id)
	process, ok = n.(int)
	return process, ok && process >= 0 && process < w.size
}

// abandon tells processes that wait for the world that it will not form.
func (w *world) abandon() {
	if w == nil || w.formed() {
		return
	}
	w.abandoning.Go(func() { w.seed.Close() })
}

// missing returns a message if all processes have ended and some have never joined.
func (w *world) missing() string {
	switch {
	case w == nil || w.formed() || int(w.most.Load()) == w.size:
		return ""
	case w.most.Load() == 0:
		return "the program has ended and never joined the cluster: does it call nexar.Join?"
	default:
		return fmt.Sprintf("only %d of %d processes joined the cluster: the others ended without calling nexar.Join", w.most.Load(), w.size)
	}
}
