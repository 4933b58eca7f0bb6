//race:none its tests start child processes, which the detector does not see

package attack

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An attack disturbs a world in one way.
type attack struct {
	name   string
	checks string        // further assertions of a round, for the report
	takes  time.Duration // estimate for a round on a busy machine
	short  bool          // runs without ATTACK as well
	round  func(t *testing.T, rng *rand.Rand)
}

// attacks returns all attacks in the order of the report.
func attacks() []attack {
	return slices.Concat(processAttacks(), networkAttacks(), damageAttacks(), identityAttacks(), rogueAttacks(), memoryAttacks(), natAttacks(), hostileAttacks(), joiningAttacks(), clockAttacks(), sparseAttacks())
}

// A roundStats counts the rounds of an attack.
type roundStats struct {
	rounds  int
	failed  int
	skipped string // reason why the attack cannot run here
	spent   time.Duration
	longest time.Duration
}

// TestAttack runs the attacks; see the documentation of the package.
func TestAttack(t *testing.T) {
	text := os.Getenv("ATTACK")
	only := regexp.MustCompile(os.Getenv("ATTACK_ONLY"))
	list := slices.DeleteFunc(attacks(), func(a attack) bool { return !only.MatchString(a.name) })
	if text == "" {
		seed := chooseSeed(t)
		for _, a := range list {
			if a.short || os.Getenv("ATTACK_ONLY") != "" {
				run(t, a, seed, 1)
			}
		}
		return
	}
	limit, err := time.ParseDuration(text)
	if err != nil || limit <= 0 {
		t.Fatalf("ATTACK=%q: want a positive duration such as 2m", text)
	}
	c := &campaign{t: t, seed: chooseSeed(t), limit: limit, began: time.Now(), commit: commit(), list: list, stats: make(map[string]*roundStats)}
	c.run()
	report := c.report()
	fmt.Print(report)
	if path := os.Getenv("REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(report), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// chooseSeed returns ATTACK_SEED or a random seed, and prints it.
func chooseSeed(t *testing.T) uint64 {
	seed := rand.Uint64N(1_000_000_000)
	if text := os.Getenv("ATTACK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ATTACK_SEED=%q: want a number", text)
		}
	}
	fmt.Printf("attack: ATTACK_SEED=%d repeats this run\n", seed)
	return seed
}

// A campaign runs attacks for a limited time.
type campaign struct {
	t      *testing.T
	seed   uint64
	limit  time.Duration
	began  time.Time
	commit string // of the tested code
	list   []attack
	stats  map[string]*roundStats
}

// run makes rounds of all attacks in turn, in random order, while the time suffices for
// another round. An attack that has failed twice is not repeated.
func (c *campaign) run() {
	rng := rand.New(rand.NewPCG(c.seed, 1))
	fmt.Printf("attack: %d attacks for %v\n", len(c.list), c.limit)
	for _, a := range c.list {
		c.stats[a.name] = new(roundStats)
		fmt.Printf("attack:   %-22s about %v a round: %s\n", a.name, a.takes, a.checks)
	}
	for ran := true; ran; {
		ran = false
		for _, i := range rng.Perm(len(c.list)) {
			a := c.list[i]
			s := c.stats[a.name]
			if s.skipped != "" || s.failed > 1 || time.Since(c.began)+max(a.takes, s.longest) > c.limit {
				continue
			}
			ran = true
			s.rounds++
			began := time.Now()
			skipped, ok := run(c.t, a, c.seed, s.rounds)
			took := time.Since(began)
			s.spent, s.longest = s.spent+took, max(s.longest, took)
			verdict := "ok"
			switch {
			case skipped:
				s.rounds, s.skipped, verdict = 0, "this machine does not meet its requirements", "skipped"
			case !ok:
				s.failed++
				verdict = "FAILED"
			}
			fmt.Printf("attack: %6.1fs %-22s round %d: %s after %.1fs\n", time.Since(c.began).Seconds(), a.name, s.rounds, verdict, took.Seconds())
		}
	}
}

// run makes one round. Its randomness depends only on the seed, the name and the number.
func run(t *testing.T, a attack, seed uint64, round int) (skipped, ok bool) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", a.name, round)
	before, err := openFiles()
	if err != nil {
		t.Fatal(err)
	}
	ok = t.Run(fmt.Sprintf("%s/%d", a.name, round), func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		a.round(t, rand.New(rand.NewPCG(seed, h.Sum64())))
	})
	// An open file of this process would keep a namespace alive.
	if err := checkFiles(before); err != nil {
		t.Errorf("%s/%d: %v", a.name, round, err)
		ok = false
	}
	return skipped, ok
}

// report returns the table of all attacks.
func (c *campaign) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Attacks on worlds of real processes, printed by \"make attack\".\n%s\ncommit %s, ATTACK_SEED=%d, %v of %v\n\n",
		machine(), c.commit, c.seed, time.Since(c.began).Round(time.Second), c.limit)
	b.WriteString("Every round checks that all collectives had the right elements, that every operation ended within a\n" +
		"minute, that errors name attacked nodes or the loss of a link to one, that no other node was removed, and\nthat processes leaked neither goroutines nor files. The table has further checks.\n\n")
	fmt.Fprintf(&b, "%-22s %6s %6s %8s  %-7s %s\n", "attack", "rounds", "failed", "time", "verdict", "further checks")
	for _, a := range c.list {
		s := c.stats[a.name]
		verdict := "ok"
		switch {
		case s.failed > 0:
			verdict = "FAILED"
		case s.skipped != "":
			verdict = "skipped"
		case s.rounds == 0:
			verdict = "no time"
		}
		fmt.Fprintf(&b, "%-22s %6d %6d %7.0fs  %-7s %s\n", a.name, s.rounds, s.failed, s.spent.Seconds(), verdict, cmp.Or(s.skipped, a.checks))
	}
	return b.String()
}

// machine describes the machine of a report.
func machine() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s/%s, %d cores, %s, Linux %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), strings.TrimSpace(string(release)))
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
