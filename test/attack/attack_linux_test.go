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

// An attack is one way to attack a world.
type attack struct {
	name   string
	checks string        // further assertions of a round, for the report
	takes  time.Duration // a round on a busy machine, to plan with
	short  bool          // without ATTACK a round of it runs as well
	round  func(t *testing.T, rng *rand.Rand)
}

// attacks are all attacks, in the order of the report.
func attacks() []attack {
	return slices.Concat(processAttacks(), networkAttacks(), damageAttacks(), identityAttacks(), rogueAttacks(), memoryAttacks(), natAttacks(), hostileAttacks(), joiningAttacks(), clockAttacks())
}

// A tally counts the rounds of an attack.
type tally struct {
	rounds  int
	failed  int
	skipped string // why it cannot run here
	spent   time.Duration
	longest time.Duration
}

// TestAttack runs the attacks; see the documentation of the package.
func TestAttack(t *testing.T) {
	text := os.Getenv("ATTACK")
	only := regexp.MustCompile(os.Getenv("ATTACK_ONLY"))
	list := slices.DeleteFunc(attacks(), func(a attack) bool { return !only.MatchString(a.name) })
	if text == "" {
		seed := runSeedOf(t)
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
	c := &campaign{t: t, seed: runSeedOf(t), limit: limit, began: time.Now(), commit: commit(), list: list, tallies: make(map[string]*tally)}
	c.run()
	report := c.report()
	fmt.Print(report)
	if path := os.Getenv("REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(report), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// runSeedOf is ATTACK_SEED, or a random seed, which it prints.
func runSeedOf(t *testing.T) uint64 {
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

// A campaign runs attacks until its time is up.
type campaign struct {
	t       *testing.T
	seed    uint64
	limit   time.Duration
	began   time.Time
	commit  string // that was built
	list    []attack
	tallies map[string]*tally
}

// run makes rounds of all attacks in turn, each turn in another order, as long as
// there is time for another round. An attack that fails twice is not repeated.
func (c *campaign) run() {
	rng := rand.New(rand.NewPCG(c.seed, 1))
	fmt.Printf("attack: %d attacks for %v\n", len(c.list), c.limit)
	for _, a := range c.list {
		c.tallies[a.name] = new(tally)
		fmt.Printf("attack:   %-22s about %v a round: %s\n", a.name, a.takes, a.checks)
	}
	for ran := true; ran; {
		ran = false
		for _, i := range rng.Perm(len(c.list)) {
			a := c.list[i]
			s := c.tallies[a.name]
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
				s.rounds, s.skipped, verdict = 0, "this machine lacks what it needs", "skipped"
			case !ok:
				s.failed++
				verdict = "FAILED"
			}
			fmt.Printf("attack: %6.1fs %-22s round %d: %s after %.1fs\n", time.Since(c.began).Seconds(), a.name, s.rounds, verdict, took.Seconds())
		}
	}
}

// run makes one round, with chance from the seed, the name and the number alone.
func run(t *testing.T, a attack, seed uint64, round int) (skipped, ok bool) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", a.name, round)
	before, err := files()
	if err != nil {
		t.Fatal(err)
	}
	ok = t.Run(fmt.Sprintf("%s/%d", a.name, round), func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		a.round(t, rand.New(rand.NewPCG(seed, h.Sum64())))
	})
	// Namespaces live as long as the files that the test has open.
	if err := moreFiles(before); err != nil {
		t.Errorf("%s/%d: %v", a.name, round, err)
		ok = false
	}
	return skipped, ok
}

// report is the table of all attacks.
func (c *campaign) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Attacks on worlds of real processes, printed by \"make attack\".\n%s\ncommit %s, ATTACK_SEED=%d, %v of %v\n\n",
		machine(), c.commit, c.seed, time.Since(c.began).Round(time.Second), c.limit)
	b.WriteString("Every round checks that all collectives had the right elements, that every operation ended within a\n" +
		"minute, that errors name attacked nodes, or the loss of a link to one, that no other node was removed, and\nthat processes left no goroutines and no files behind. Further checks are in the table.\n\n")
	fmt.Fprintf(&b, "%-22s %6s %6s %8s  %-7s %s\n", "attack", "rounds", "failed", "time", "verdict", "further checks")
	for _, a := range c.list {
		s := c.tallies[a.name]
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

// machine names the machine of a report.
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
