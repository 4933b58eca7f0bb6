package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
)

const (
	// blameRanks is the size of the worlds of TestBlame.
	blameRanks = 4
	// blamesVariable is the number of trials of TestBlame. Without it there are blamesAlways.
	blamesVariable = "BLAMES"
	blamesAlways   = 12 // every transport with every end
	// blameEnv turns the test binary into a rank of TestBlame. Its value is the configuration of the
	// rank as JSON.
	blameEnv = "CLUSTERTEST_BLAME"
)

// A blameTrial forms a world and has one rank, the culprit, cause a failure. Every other rank ends
// its process at its first error, as log.Fatal does, without closing its node.
type blameTrial struct {
	Transport, Operation, End string
	Culprit                   int
	Round                     int // the culprit ends in it
}

// A verdict is the first error of a rank.
type verdict struct {
	Rank     int
	Named    int   // the rank that the error names as the cause, or -1
	Suspects []int // if Named is -1
	Text     string
}

// blameEnds are the possible ends of the culprit.
var blameEnds = []string{"exit", "return", "cancel", "panic"}

// blameOperations are the operations that all ranks repeat.
var blameOperations = []string{"barrier", "all_reduce 8 B", "all_reduce 1 MiB", "ring", "split"}

// blameRank is the main function of a rank. It returns the exit status.
func blameRank(text string) int {
	var t blameTrial
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		fmt.Fprintln(os.Stderr, "order:", err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "join:", err)
		return 2
	}
	c := node.World()
	for round := 0; ; round++ {
		if c.Rank() == t.Culprit && round == t.Round {
			switch t.End {
			case "exit":
				return 3
			case "return":
				node.Close()
				return 0
			case "panic":
				panic("the culprit of a trial")
			case "cancel":
				cancel()
			}
		}
		if err := t.operate(ctx, c); err != nil {
			// Nothing comes between the error and the end of the process.
			v := verdict{Rank: c.Rank(), Text: err.Error()}
			v.Named, v.Suspects = named(err)
			json.NewEncoder(os.Stdout).Encode(v)
			return 1
		}
	}
}

// operate carries out the operation once.
func (t *blameTrial) operate(ctx context.Context, c *nexar.Comm) error {
	switch t.Operation {
	case "barrier":
		return c.Barrier(ctx)
	case "all_reduce 8 B":
		return nexar.AllReduce(ctx, c, make([]int64, 1), nexar.Sum)
	case "all_reduce 1 MiB":
		return nexar.AllReduce(ctx, c, make([]int64, 1<<17), nexar.Sum)
	case "split":
		half, err := c.Split(ctx, c.Rank()%2, 0)
		if err == nil {
			half.Close()
		}
		return err
	}
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if err := nexar.Send(ctx, c, make([]int64, 100), next, 1); err != nil {
		return err
	}
	_, err := nexar.Recv(ctx, c, make([]int64, 100), previous, 1)
	return err
}

// named returns the rank that an error names as its cause or, if that is unknown, -1 and the suspects.
func named(err error) (rank int, suspects []int) {
	if e, ok := errors.AsType[*nexar.PeerError](err); ok {
		for _, s := range e.Suspects {
			suspects = append(suspects, s.Rank)
		}
		if e.Suspects != nil {
			return -1, suspects
		}
		return e.Rank, nil
	}
	if e, ok := errors.AsType[*nexar.RevokedError](err); ok {
		return e.Rank, nil
	}
	return -1, nil
}

// A rank that ends an operation by an error tells the others why before its program gets the
// error. So no error names a rank that has ended only because of its own error. If the cause is unknown, the culprit is
// among the suspects.
func TestBlame(t *testing.T) {
	count := blamesAlways
	long := os.Getenv(blamesVariable)
	if long != "" {
		var err error
		if count, err = strconv.Atoi(long); err != nil || count < 1 {
			t.Fatalf("%s=%q: want a positive number", blamesVariable, long)
		}
	}
	sums := make(map[string]*blameSum)
	for i := range count {
		// Twelve trials have every transport with every end, and sixty every operation with them.
		trial := blameTrial{
			Transport: []string{"shm", "tcp", "quic"}[i%3], End: blameEnds[i%4],
			Operation: blameOperations[(i/3+2*(i/12))%len(blameOperations)], Culprit: i / 5 % blameRanks, Round: 20 + 7*(i%5),
		}
		verdicts := trial.run(t)
		sum := sums[trial.Transport]
		if sum == nil {
			sum = new(blameSum)
			sums[trial.Transport] = sum
		}
		sum.add(t, i, &trial, verdicts)
		if long != "" && (i+1)%100 == 0 {
			fmt.Fprintf(os.Stderr, "%d trials\n", i+1)
		}
	}
	if long != "" {
		report := blameReport(sums)
		t.Log("\n" + report)
		writeReport(t, report)
	}
}

// run runs the processes of a trial and returns the first error of every rank but the culprit.
func (b *blameTrial) run(t *testing.T) (verdicts []verdict) {
	t.Helper()
	token := nexar.NewToken()
	ctx := t.Context()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: blameRanks, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NEXAR_") })
	env = slices.Concat(env, patientVars(), []string{
		blameEnv + "=" + string(text), "NEXAR_CLUSTER_TOKEN=" + token, "NEXAR_SEEDS=" + seed.Addr(),
		"NEXAR_LISTEN=127.0.0.1:0", "NEXAR_TRANSPORTS=" + b.Transport, "NEXAR_LINKS=" + blameLinks(),
	})
	var mu sync.Mutex
	var running sync.WaitGroup
	for rank := range blameRanks {
		running.Go(func() {
			var out, log testlog.Buffer
			cmd := exec.CommandContext(ctx, exe)
			cmd.Env = append(slices.Clone(env), fmt.Sprint("NEXAR_RANK=", rank))
			cmd.Stdout, cmd.Stderr = &out, &log
			_ = cmd.Run() // The verdict tells more than the status.
			if rank == b.Culprit {
				return
			}
			v := verdict{Rank: rank, Named: -1}
			if err := json.Unmarshal([]byte(out.String()), &v); err != nil {
				t.Errorf("%+v: rank %d has ended without an error: %v\n%s", *b, rank, cmd.ProcessState, log.String())
			}
			mu.Lock()
			defer mu.Unlock()
			verdicts = append(verdicts, v)
		})
	}
	running.Wait()
	return verdicts
}

// A blameSum counts the errors over one transport.
type blameSum struct{ trials, errors, right, unknown, unsuspected, innocent int }

func (s *blameSum) add(t *testing.T, i int, trial *blameTrial, verdicts []verdict) {
	s.trials++
	for _, v := range verdicts {
		s.errors++
		switch v.Named {
		case trial.Culprit:
			s.right++
		case -1:
			s.unknown++
			if slices.Contains(v.Suspects, trial.Culprit) {
				t.Logf("trial %d, %+v: rank %d suspects %v: %s", i, *trial, v.Rank, v.Suspects, v.Text)
				continue
			}
			s.unsuspected++
			t.Errorf("trial %d, %+v: rank %d names no cause, and its suspects are %v, without the culprit: %s", i, *trial, v.Rank, v.Suspects, v.Text)
		default:
			s.innocent++
			t.Errorf("trial %d, %+v: rank %d names rank %d, which is innocent: %s", i, *trial, v.Rank, v.Named, v.Text)
		}
	}
}

// blameLinks returns the setting of the links of all ranks: NEXAR_LINKS, or else the default.
func blameLinks() string { return cmp.Or(os.Getenv("NEXAR_LINKS"), "demand") }

// blameReport returns the report of "make blame".
func blameReport(sums map[string]*blameSum) string {
	var b strings.Builder
	fmt.Fprintf(&b, `One of %d ranks ends early in each trial: it exits, panics, closes its node, or cancels an operation. Every
other rank ends its process at its first error at once, without closing its node, as log.Fatal does. The table counts
the errors by the rank that they name as the cause. If the cause is unknown, the error lists suspects; the last column
counts the lists without the culprit. Printed by "make blame".
%s
commit %s, NEXAR_LINKS=%s

transport  trials  errors  culprit  unknown  innocent  unsuspected
`, blameRanks, machine(), commit(), blameLinks())
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		fmt.Fprintf(&b, "%-9s  %6d  %6d  %7d  %7d  %8d  %11d\n", name, s.trials, s.errors, s.right, s.unknown, s.innocent, s.unsuspected)
	}
	return b.String()
}

// TestBlameReport: the report has the revision, the setting of the links, and a line for each transport.
func TestBlameReport(t *testing.T) {
	t.Setenv("NEXAR_LINKS", "eager")
	text := blameReport(map[string]*blameSum{"tcp": {trials: 3, errors: 9, right: 8, unknown: 1}})
	for _, want := range []string{"\ncommit " + commit() + ", NEXAR_LINKS=eager\n", "\ntcp             3       9        8        1         0            0\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report\n%s\ndoes not contain %q", text, want)
		}
	}
}
