package nexar_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestLocalSettings: docs/config.md lists the settings that Local uses: those of three sections, and Links.
func TestLocalSettings(t *testing.T) {
	text, err := os.ReadFile("docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, about, _ := strings.Cut(string(text), "**Ranks of one process.**")
	about, _, _ = strings.Cut(about, "\n\n")
	var documented []string
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|")
	for _, m := range regexp.MustCompile(`\[([^\]]+)\]\(#`).FindAllStringSubmatch(about, -1) {
		_, section, found := strings.Cut(string(text), "\n## "+strings.ReplaceAll(m[1], "\n", " ")+"\n")
		if !found {
			t.Errorf("docs/config.md has no section %q", m[1])
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, field := range row.FindAllStringSubmatch(section, -1) {
			documented = append(documented, field[1])
		}
	}
	for _, m := range regexp.MustCompile("`([A-Z]\\w+)`").FindAllStringSubmatch(about, -1) {
		documented = append(documented, m[1])
	}
	used := append(nexar.LocalSettings(), "Buffers")
	slices.Sort(used)
	slices.Sort(documented)
	if !slices.Equal(used, documented) {
		t.Errorf("Local uses %v\ndocs/config.md has %v", used, documented)
	}
}

// TestLocalDoesNotChange: a world of Local neither recovers nor grows. The error names the alternatives.
func TestLocalDoesNotChange(t *testing.T) {
	comms := worldtest.Local(t, 2, nexar.Config{})
	if err := comms[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := comms[0].Barrier(t.Context()); err == nil {
		t.Error("a barrier succeeds without rank 1")
	}
	const want = "it has no seed; use Join or, in tests, nexartest.New"
	if c, err := comms[0].Exclude(t.Context(), []int{1}); c != nil || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Exclude = %v, %v, want an error with %q", c, err, want)
	}
	if c, err := comms[0].Include(t.Context()); c != nil || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Include = %v, %v, want an error with %q", c, err, want)
	}
	if err := comms[0].Err(); err == nil {
		t.Error("the communicator of rank 0 has not ended")
	}
}

// TestSettingsOfCommunicators: a communicator and those made of it report the settings of the node.
func TestSettingsOfCommunicators(t *testing.T) {
	check := func(c *nexar.Comm, deterministic bool, silence time.Duration) error {
		part, err := c.Split(t.Context(), c.Rank(), 0)
		if err != nil {
			return err
		}
		dup, err := c.Dup(t.Context())
		if err != nil {
			return err
		}
		for _, c := range []*nexar.Comm{c, part, dup} {
			if c.Deterministic() != deterministic || c.HeartbeatTimeout() != silence {
				return fmt.Errorf("Deterministic %v, HeartbeatTimeout %v, want %v and %v", c.Deterministic(), c.HeartbeatTimeout(), deterministic, silence)
			}
		}
		return errors.Join(part.Close(), dup.Close())
	}
	for _, deterministic := range []bool{false, true} {
		worldtest.OnAll(t, worldtest.Local(t, 2, nexar.Config{Deterministic: deterministic}), func(_ int, c *nexar.Comm) error { return check(c, deterministic, 0) })
	}
	t.Setenv("NEXAR_DETERMINISTIC", "1")
	worldtest.OnAll(t, worldtest.Local(t, 2, nexar.Config{}), func(_ int, c *nexar.Comm) error { return check(c, true, 0) })
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	node, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", HeartbeatTimeout: 17 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if err := check(node.World(), true, 19*time.Second); err != nil {
		t.Error(err)
	}
}
