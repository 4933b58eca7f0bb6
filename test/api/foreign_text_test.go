package api

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/test/worldtest"
)

// hostile is text with a terminal escape, a forged line and invalid UTF-8; escaped is its form in
// errors.
const (
	hostile = "\x1b[31mred\nnexar: \xff"
	escaped = `\x1b[31mred\nnexar: \xff`
)

// checkPrintable fails the test unless text is printable.
func checkPrintable(t *testing.T, what, text string) {
	t.Helper()
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%s: %q is not printable", what, text)
	}
}

// TestForeignTextOfVariables: the error about a variable of the environment can be
// printed, for any value.
func TestForeignTextOfVariables(t *testing.T) {
	refused := 0
	for _, value := range []string{hostile, hostile + ":7000", "127.0.0.1:" + hostile, "all_reduce=" + hostile, "1," + hostile} {
		for _, f := range settings.Fields[nexar.Config]() {
			for _, name := range f.Variables() {
				t.Run(name, func(t *testing.T) {
					t.Setenv(name, value)
					if _, err := nexar.ConfigFromEnv(); err != nil {
						refused++
						checkPrintable(t, name, err.Error())
					}
					if _, err := nexar.Join(t.Context(), nexar.Config{FormTimeout: 1}); err != nil {
						checkPrintable(t, "Join with "+name, err.Error())
					}
				})
			}
		}
	}
	if refused < 100 {
		t.Errorf("%d values were rejected, want more", refused)
	}
	for _, p := range nexar.CheckEnviron([]string{"NEXAR_" + hostile + "=1"}) {
		checkPrintable(t, "CheckEnviron", p.Text+p.Fix)
	}
	// Fields set by the program occur in the same errors.
	for _, cfg := range []nexar.Config{
		{Seeds: []string{hostile}}, {Listen: hostile}, {Advertise: hostile}, {Topology: hostile}, {Algorithms: []string{hostile}},
		{Transports: []string{hostile}}, {Memory: hostile}, {Recovery: hostile}, {Token: hostile},
	} {
		_, err := nexar.Join(t.Context(), cfg)
		if !errors.Is(err, nexar.ErrConfig) {
			t.Errorf("Join with %+v: error %v, want %v", cfg, err, nexar.ErrConfig)
			continue
		}
		checkPrintable(t, "Join", err.Error())
	}
	if _, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{World: 1, Listen: hostile}); err == nil {
		t.Error("StartSeed accepts an invalid address")
	} else {
		checkPrintable(t, "StartSeed", err.Error())
	}
	if len(os.Getenv("NEXAR_SEEDS")) > 0 {
		t.Error("the environment of the test was not restored")
	}
}

// TestForeignTextOfRanks: errors with text from another rank are printable.
func TestForeignTextOfRanks(t *testing.T) {
	for _, m := range []worldtest.Medium{worldtest.Mem(), worldtest.QUIC()} {
		comms := m.Cluster(t, 2, nexar.Config{})
		comms[1].Register("fail", func(context.Context, int, []byte) ([]byte, error) { return nil, errors.New(hostile) })
		comms[1].Register("panic", func(context.Context, int, []byte) ([]byte, error) { panic(hostile) })
		for _, fn := range []string{"fail", "panic", "none" + hostile} {
			_, err := comms[0].Call(t.Context(), 1, fn, nil)
			if err == nil || !strings.Contains(err.Error(), escaped) {
				t.Errorf("%s: calling %q: error %v, want one with %s", m.Name, fn, err, escaped)
				continue
			}
			checkPrintable(t, fn, err.Error())
			if e, ok := errors.AsType[*nexar.HandlerError](err); ok && e.Text != hostile {
				t.Errorf("%s: text %q, want %q", m.Name, e.Text, hostile)
			}
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 1 {
				cancel(errors.New(hostile))
				_ = c.Barrier(ctx)
				return nil
			}
			err := c.Barrier(t.Context())
			if !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), escaped) {
				t.Errorf("%s: barrier: error %v, want one with %s", m.Name, err, escaped)
				return nil
			}
			checkPrintable(t, "barrier", err.Error())
			return nil
		})
	}
}
