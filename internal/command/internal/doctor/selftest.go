package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/bench"
	"github.com/nexar-go/nexar/internal/command/internal/report"
)

const (
	// selfTestTimeout limits the duration of the self-test.
	selfTestTimeout = 30 * time.Second
	selfTestRanks   = 2
	selfTestBytes   = 1 << 20
)

// acrossHosts returns those of the transports TCP and QUIC that NEXAR_TRANSPORTS allows, or both if it allows
// neither.
func acrossHosts() (names []string) {
	both := []string{"tcp", "quic"}
	if cfg, err := nexar.ConfigFromEnv(); err == nil {
		names = slices.DeleteFunc(slices.Clone(both), func(name string) bool { return !slices.Contains(cfg.Transports, name) })
	}
	if len(names) == 0 {
		return both
	}
	return names
}

// selfTest forms a cluster of two nodes in this process over the loopback interface, and measures it.
func selfTest(ctx context.Context, transports []string) []Finding {
	ctx, cancel := context.WithTimeout(ctx, selfTestTimeout)
	defer cancel()
	began := time.Now()
	nodes, closeAll, err := formLoopback(ctx, transports)
	if err != nil {
		return []Finding{{About: "self-test", Status: Fail, Text: "cannot form a cluster of two ranks on the loopback interface: " + err.Error(),
			Fix: "bring the loopback interface up (ip link set lo up), and check whether a firewall or the container blocks UDP on it"}}
	}
	defer closeAll()
	list := []Finding{{About: "self-test", Status: OK, Text: fmt.Sprintf("two ranks formed a cluster over %s on the loopback interface in %s",
		nodes[0].World().Transport(), report.Micros(micros(time.Since(began))))}}

	results, err := measure(ctx, nodes)
	if err != nil {
		return append(list, Finding{About: "self-test", Status: Fail, Text: "operations failed: " + err.Error(),
			Fix: "check whether a firewall of this host drops UDP packets"})
	}
	for _, r := range results {
		f := Finding{About: "self-test", Status: OK, Text: fmt.Sprintf("%s: %s", r.Op, report.Micros(r.P50))}
		if r.Bytes > 0 {
			f.Text = fmt.Sprintf("%s of %s: %s, %.2f GB/s", r.Op, report.Size(r.Bytes), report.Micros(r.P50), r.Alg)
		}
		if r.Wrong > 0 {
			f.Status, f.Fix = Fail, "test the memory of this machine"
			f.Text += fmt.Sprintf(", %s", report.Count(int(r.Wrong), "wrong element"))
		}
		list = append(list, f)
	}
	return list
}

// caVariable is the variable of [nexar.Config].CAFile.
const caVariable = "NEXAR_CA_FILE"

// formLoopback forms the cluster of the self-test.
func formLoopback(ctx context.Context, transports []string) (nodes []*nexar.Node, closeAll func(), err error) {
	// The seed of the self-test has no CA of the user, which Join would require.
	if file, ok := os.LookupEnv(caVariable); ok {
		os.Unsetenv(caVariable)
		defer os.Setenv(caVariable, file)
	}
	token := nexar.NewToken()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: "127.0.0.1:0", World: selfTestRanks, Token: token, FormTimeout: selfTestTimeout,
		Transports: transports, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, nil, err
	}
	nodes = make([]*nexar.Node, selfTestRanks)
	errs := make([]error, selfTestRanks)
	var joining sync.WaitGroup
	for rank := range nodes {
		joining.Go(func() {
			nodes[rank], errs[rank] = nexar.Join(ctx, nexar.Config{
				Seeds: []string{seed.Addr()}, Token: token, Rank: &rank,
				Listen: "127.0.0.1:0", FormTimeout: selfTestTimeout,
				Transports: transports, Log: slog.New(slog.DiscardHandler),
			})
		})
	}
	joining.Wait()
	closeAll = func() {
		var closing sync.WaitGroup
		for _, n := range nodes {
			if n != nil {
				closing.Go(func() { n.Close() })
			}
		}
		closing.Wait()
		seed.Close()
	}
	if err := errors.Join(errs...); err != nil {
		closeAll()
		return nil, nil, err
	}
	return nodes, closeAll, nil
}

// measure measures a barrier, a message and an all-reduce.
func measure(ctx context.Context, nodes []*nexar.Node) ([]bench.Result, error) {
	var results []bench.Result
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			errs[i] = bench.Run(ctx, n.World(), bench.Config{
				Ops: []string{"barrier", "send_recv", "all_reduce"}, MinBytes: selfTestBytes, MaxBytes: selfTestBytes,
				Duration: 2 * time.Second, Result: func(r bench.Result) { results = append(results, r) },
			})
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
