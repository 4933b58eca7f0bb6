package page

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/nexar-go/nexar/internal/page"
	"github.com/nexar-go/nexar/internal/page/model"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/trace"
)

// TestRoles: a screen reader finds the sentence, the hosts, the ranks and their states by roles and names, and the keyboard reaches
// all controls.
func TestRoles(t *testing.T) {
	f := newFake(16, 4)
	url, ticket := serve(t, f.ask)
	b := newTab(t)
	b.do(chromedp.Navigate(url))
	if tree := b.tree(); !strings.Contains(tree, "\ntextbox Ticket") || !strings.Contains(tree, "\nbutton Enter") {
		t.Errorf("the form has the tree\n%s", tree)
	}
	b.do(chromedp.SendKeys(chromedp.CSS("#ticket"), "aaaa-bbbb-cccc-dddd\r"), chromedp.WaitVisible(chromedp.CSS("[role=alert]")))
	if words := value[string](b, "document.querySelector('[role=alert]').textContent"); words != "This ticket is not valid, or no longer." {
		t.Errorf("after a wrong ticket the form says %q", words)
	}
	b.enter(url, ticket)
	if got := value[string](b, "location.href"); got != url+"/" {
		t.Errorf("the address of the page is %s, want %s/", got, url)
	}
	b.await(time.Now(), limit, "All 16 ranks work")
	f.set(func(f *fake) { f.late = 9 })
	b.await(time.Now(), limit, "for rank 9")
	time.Sleep(time.Second) // for the throughput
	tree := b.tree()
	for _, want := range []string{
		`banner `, `main `, `contentinfo `, `heading Ranks 0–8 and 10–15 wait in all_reduce #\d+.* for rank 9`, `heading Who waits for whom`, `heading Ranks`, `heading Links`, `heading History`,
		`table Ranks`, `columnheader Rank`, `columnheader State`, `columnheader Call`, `columnheader Since`,
		`(Disclosure[A-Za-z]+|button) node-c0 rank 9 is late, 3 ranks wait`, `rowheader 9 pid 4109`, `(cell|gridcell) late in no call; others wait for it`, `(cell|gridcell) 889 MB`, `(cell|gridcell) waits for rank 9`,
		`checkbox Only hosts with a problem`, `button Fold all`, `(combobox|combobox[A-Za-z]*|ComboBoxSelect) Call`, `image Throughput of the last .*: at most [\d.]+ [kMG]B/s`,
		`image rank 3: from [\d.]+ (ns|µs|ms) to [\d.]+ m?s`, `link Skip to the ranks`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(tree) {
			t.Errorf("the page has no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("the tree is\n%s", tree)
	}
	said := value[string](b, "document.querySelector('[role=status]').textContent")
	if !strings.Contains(said, "for rank 9") {
		t.Errorf("a screen reader has heard %q, want the sentence", said)
	}

	// Tab goes through the controls in their visible order.
	var order []string
	b.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur(); void 0"))
	for range 9 {
		b.do(chromedp.KeyEvent(kb.Tab))
		order = append(order, value[string](b, "(document.activeElement.id || document.activeElement.querySelector('.name')?.textContent || document.activeElement.textContent)"))
	}
	if got, want := strings.Join(order, ", "), "Skip to the ranks, only, fold, node-a0, node-b0, node-c0, node-d0, call, timeline"; got != want {
		t.Errorf("Tab goes to %s, want %s", got, want)
	}
	rows := "document.querySelectorAll('tr.rank').length"
	if n := value[int](b, rows); n != 16 {
		t.Errorf("%d ranks are shown, want 16", n)
	}
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('.host button')[1].focus(); void 0"), chromedp.KeyEvent(kb.Enter))
	if n := value[int](b, rows); n != 12 {
		t.Errorf("after Enter on a host %d ranks are shown, want 12", n)
	}
	b.do(chromedp.Evaluate[chromedp.Void]("document.getElementById('only').focus(); void 0"), chromedp.KeyEvent(" "))
	if n := value[int](b, "document.querySelectorAll('#hosts tbody:not([hidden])').length"); n != 1 {
		t.Errorf("%d hosts have a problem, want 1", n)
	}
	b.do(chromedp.Evaluate[chromedp.Void]("document.getElementById('only').blur(); void 0"))
	b.picture("late", 1280)
	b.picture("late-narrow", 390)
}

// TestMarkup: names of peers are text, also with markup in them.
func TestMarkup(t *testing.T) {
	f := newFake(4, 2)
	evil := `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>&amp;`
	f.name = func(rank int) string { return fmt.Sprintf("%s%d:%d", evil, rank/2, 100+rank) }
	f.late = 1
	url, ticket := serve(t, f.ask)
	b := newTab(t)
	b.enter(url, ticket)
	b.await(time.Now(), limit, "for rank 1")
	time.Sleep(500 * time.Millisecond)
	if got := value[string](b, "document.querySelector('.host .name').textContent"); got != evil+"0" {
		t.Errorf("the name of the host is %q, want %q", got, evil+"0")
	}
	if n := value[int](b, "document.querySelectorAll('img:not(.brand img), script:not(head script)').length"); n != 0 {
		t.Errorf("the page has %d elements of a peer", n)
	}
	if title := value[string](b, "document.title"); strings.Contains(title, "owned") {
		t.Errorf("a peer has changed the title to %q", title)
	}
}

// TestThousand: 1,024 ranks on 128 hosts are usable: hosts are folded, and drawing is fast.
func TestThousand(t *testing.T) {
	f := newFake(1024, 8)
	url, ticket := serve(t, f.ask)
	b := newTab(t)
	began := time.Now()
	b.enter(url, ticket)
	t.Logf("the sentence stands after %v", b.await(began, limit, "All 1024 ranks work").Round(time.Millisecond))
	time.Sleep(2 * time.Second)
	if hosts, rows := value[int](b, "document.querySelectorAll('.host').length"), value[int](b, "document.querySelectorAll('tr.rank').length"); hosts != 128 || rows != 0 {
		t.Errorf("%d hosts and %d ranks are shown, want 128 folded hosts", hosts, rows)
	}
	f.set(func(f *fake) { f.silent = 700 })
	began = time.Now()
	t.Logf("a rank that does not answer stands there after %v", b.await(began, limit, "rank 700").Round(time.Millisecond))
	b.picture("thousand", 1280)
	b.do(chromedp.Click(chromedp.CSS("#fold")))
	if rows := value[int](b, "document.querySelectorAll('tr.rank').length"); rows != 1024 {
		t.Errorf("%d ranks are shown, want all", rows)
	}
	// The time of the page for all of them, which change at each answer.
	f.set(func(f *fake) { f.silent = -1 })
	b.await(time.Now(), limit, "All 1024 ranks work")
	call(b, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	busy := func() (seconds float64) { // of processor time: a test machine may do much else
		for _, m := range call(b, performance.GetMetrics, cdp.Empty{}).Metrics {
			if m.Name == "TaskDuration" {
				seconds = m.Value
			}
		}
		return seconds
	}
	answers := func() (n uint64) {
		f.set(func(f *fake) { n = f.seq })
		return n
	}
	before, first := busy(), answers()
	for began = time.Now(); answers() < first+3 && time.Since(began) < limit; {
		time.Sleep(100 * time.Millisecond)
	}
	n := answers() - first
	each := (busy() - before) / float64(max(1, n))
	t.Logf("with all ranks unfolded, the page is busy for %.0f ms for each of %d answers", 1000*each, n)
	if n == 0 || each <= 0 || each > 1 {
		t.Errorf("the page takes %.2f s of processor time for each of %d answers, want at most 1 s", each, n)
	}
}

// TestPicture makes the picture of the README, which PAGE_PICTURE names.
func TestPicture(t *testing.T) {
	file := os.Getenv("PAGE_PICTURE")
	require.Have(t, "page-picture", file != "", "PAGE_PICTURE names no file for the picture of the README; make page sets it")
	ended := make(chan struct{})
	p := page.New(page.NewKey("token of a test"), func(context.Context) (trace.Cluster, error) { <-ended; return trace.Cluster{}, context.Canceled })
	server := httptest.NewServer(p)
	defer func() { close(ended); p.Close(); server.Close() }()
	f := newFake(64, 8)
	f.name = func(rank int) string { return fmt.Sprintf("gpu-%02d:%d", 1+rank/8, 4100+rank) }
	now := time.Now().Add(-5 * time.Minute)
	f.clock, f.began = func() time.Time { return now }, now
	f.formed = now.Add(-42 * time.Minute)
	var m model.Model
	var last model.View
	for i := range 300 {
		if now = now.Add(time.Second); i == 286 {
			f.set(func(f *fake) { f.late = 17 })
		}
		c, _ := f.ask(t.Context())
		last = m.Add(c, now)
	}
	b := newTab(t)
	b.enter(server.URL, p.Ticket())
	for !strings.Contains(b.sentence(), "for rank 17") {
		p.Show(last)
		time.Sleep(50 * time.Millisecond)
	}
	b.do(chromedp.EmulateViewport(1180, 820), chromedp.Click(chromedp.CSS("tbody:nth-of-type(3) button")),
		chromedp.Evaluate[chromedp.Void]("document.activeElement.blur(); scrollTo(0, 0); void 0"), chromedp.Sleep(500*time.Millisecond))
	if err := os.WriteFile(file, run(b, chromedp.CaptureScreenshot()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// usage returns the bytes of the objects of a page, and the number of its nodes, after a garbage collection.
func (b *tab) usage() (bytes float64, nodes int64) {
	b.t.Helper()
	call(b, heapprofiler.CollectGarbage, cdp.Empty{})
	call(b, heapprofiler.CollectGarbage, cdp.Empty{})
	return call(b, runtime.GetHeapUsage, cdp.Empty{}).UsedSize, call(b, memory.GetDOMCounters, cdp.Empty{}).Nodes
}

// TestAnHour: a page that is left open for an hour of events does not grow. There is a view every 3 s, or with TRIALS=all every second.
func TestAnHour(t *testing.T) {
	ended := make(chan struct{})
	p := page.New(page.NewKey("token of a test"), func(context.Context) (trace.Cluster, error) { <-ended; return trace.Cluster{}, context.Canceled })
	server := httptest.NewServer(p)
	defer func() { close(ended); p.Close(); server.Close() }()
	b := newTab(t)
	var m model.Model
	now := time.Now()
	f := newFake(64, 8)
	f.clock = func() time.Time { return now }
	f.began = now
	step := 3 * time.Second
	if require.AllTrials() {
		step = time.Second
	}
	feed := func(d time.Duration) {
		t.Helper()
		for i := range int(d / step) {
			now = now.Add(step)
			switch i % 60 {
			case 20:
				f.set(func(f *fake) { f.late = i % 64 })
			case 30:
				f.set(func(f *fake) { f.late, f.silent = -1, i%64 })
			case 40:
				f.set(func(f *fake) { f.silent, f.mutual = -1, true })
			case 50:
				f.set(func(f *fake) { f.mutual = false })
			}
			c, _ := f.ask(t.Context())
			p.Show(m.Add(c, now))
			time.Sleep(4 * time.Millisecond)
		}
		version := now.UTC().Format("15:04:05")
		for range 500 {
			if strings.Contains(value[string](b, "new Date(Date.parse(document.getElementById('when').dataset.time ?? 0)).toISOString()"), version) {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Fatal("the page does not show the last view")
	}
	c, _ := f.ask(t.Context())
	p.Show(m.Add(c, now))
	b.enter(server.URL, p.Ticket())
	feed(15 * time.Minute) // until all bounded series are full
	bytes, nodes := b.usage()
	feed(time.Hour)
	bytesAfter, nodesAfter := b.usage()
	t.Logf("after 15 minutes: %.2f MB, %d nodes; an hour later: %.2f MB, %d nodes", bytes/1e6, nodes, bytesAfter/1e6, nodesAfter)
	if bytesAfter > bytes*1.15+500_000 || float64(nodesAfter) > float64(nodes)*1.15+200 {
		t.Error("the page has grown")
	}
}
