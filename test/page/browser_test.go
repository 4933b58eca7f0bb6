package page

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/nexar-go/nexar/internal/page"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/trace"
)

// chromium returns the path of a Chromium.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.Have(t, "chromium", false, "no Chromium is installed (apt-get install chromium)")
	return ""
}

// A tab is a tab of a browser of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	foreign bool // the page is not ours: its errors do not count
}

// newTab starts a browser. The test fails if scripts report errors, or if the browser blocks something by the policy of the page.
func newTab(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	browser, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, stop := chromedp.NewContext(browser)
	b := &tab{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	messages := chromedp.Console(ctx)
	var reading sync.WaitGroup
	var problems []string
	reading.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			// A page that waits for its server reports that, as it should.
			if text := m.String(); (m.Type == chromedp.ConsoleError || m.IsException()) && !strings.Contains(text, "net::ERR_") && !strings.Contains(text, "status of 401") {
				problems = append(problems, text)
			}
		}
	})
	t.Cleanup(func() {
		stop()
		cancel()
		reading.Wait()
		if len(problems) > 0 && !b.foreign {
			t.Errorf("the page has reported errors: %q", problems)
		}
	})
	return b
}

// browserMax bounds a step of a browser.
const browserMax = 3 * time.Minute

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(steps...))
}

func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, func(ctx context.Context, t *chromedp.Target) (T, error) {
		ctx, cancel := context.WithTimeout(ctx, browserMax)
		defer cancel()
		return action(ctx, t)
	})
	if err != nil {
		b.t.Fatalf("browser: %v", err)
	}
	return v
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return run(b, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
}

// enter opens a page and shows a ticket.
func (b *tab) enter(url, ticket string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url), chromedp.SendKeys(chromedp.CSS("#ticket"), ticket+"\r"), chromedp.WaitVisible(chromedp.CSS("#sentence")))
}

// value evaluates an expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression))
}

func (b *tab) sentence() string {
	return value[string](b, "document.getElementById('sentence')?.textContent ?? ''")
}

// limit is the longest time until an event stands on the page. On a machine that is not busy it is 2 s; the tests print the real times.
const limit = 2 * time.Minute

// await waits until the sentence has all parts, and returns the time since began.
func (b *tab) await(began time.Time, limit time.Duration, parts ...string) time.Duration {
	b.t.Helper()
	var s string
	for time.Since(began) < limit {
		s = b.sentence()
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s, part) }) {
			return time.Since(began)
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.t.Fatalf("after %v the sentence is %q, want %q in it", limit, s, parts)
	return 0
}

// picture keeps pictures of the whole page in light and dark, if PAGE_SCREENSHOTS is set.
func (b *tab) picture(name string, width int64) {
	b.t.Helper()
	dir := os.Getenv("PAGE_SCREENSHOTS")
	if dir == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		b.do(chromedp.EmulateViewport(width, 900), chromedp.Sleep(300*time.Millisecond))
		png := run(b, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(dir, name+"-"+scheme+".png"), png, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// tree returns the accessibility tree as lines of "role name".
func (b *tab) tree() string {
	b.t.Helper()
	var lines []string
	text := func(v *accessibility.Value) (s string) {
		if v != nil && len(v.Value) > 0 && json.Unmarshal(v.Value, &s) != nil {
			b.t.Fatalf("a role or name is %s, want a string", v.Value)
		}
		return s
	}
	for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if role := text(n.Role); !n.Ignored && role != "InlineTextBox" && role != "StaticText" {
			lines = append(lines, text(n.Role)+" "+text(n.Name))
		}
	}
	return strings.Join(lines, "\n")
}

// serve serves a page of a source, and returns its address and a ticket.
func serve(t *testing.T, ask func(context.Context) (trace.Cluster, error)) (url, ticket string) {
	t.Helper()
	p := page.New(page.NewKey("token of a test"), ask)
	server := httptest.NewServer(p)
	t.Cleanup(func() { p.Close(); server.Close() })
	return server.URL, p.Ticket()
}
