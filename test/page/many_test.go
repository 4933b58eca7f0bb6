//go:build unix

package page

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// manyVariable is the number of ranks of TestMany. "make watch" sets it.
const manyVariable = "WATCH"

// A reader is a browser without a screen: it reads the stream of the page.
type reader struct {
	mu       sync.Mutex
	sentence string
	messages int
	packed   int64 // bytes that have arrived
	plain    int64 // the same after decompression
	largest  int   // message, after decompression
	end      func()
}

// A tally counts bytes.
type tally struct {
	io.Reader
	n func(int)
}

func (t tally) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	t.n(n)
	return n, err
}

// read enters a page with a ticket, and reads its stream until end is called.
func read(t *testing.T, page, ticket string) *reader {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	answer, err := client.PostForm(page+"ticket", url.Values{"ticket": {ticket}})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page+"events", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Accept-Encoding", "gzip")
	stream, err := client.Do(q) //nolint:bodyclose // end closes it
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", stream, err)
	}
	r := new(reader)
	count := func(to *int64) func(int) {
		return func(n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			*to += int64(n)
		}
	}
	var reading sync.WaitGroup
	r.end = func() {
		stream.Body.Close()
		reading.Wait()
	}
	reading.Go(func() {
		z, err := gzip.NewReader(tally{stream.Body, count(&r.packed)})
		if err != nil {
			t.Error(err)
			return
		}
		lines := bufio.NewReader(tally{z, count(&r.plain)})
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				r.take(t, data)
			}
		}
	})
	return r
}

func (r *reader) take(t *testing.T, data []byte) {
	var m struct {
		Parts struct{ Cluster struct{ Sentence string } }
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Errorf("%v in %.100s", err, data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages++
	r.largest = max(r.largest, len(data))
	if s := m.Parts.Cluster.Sentence; s != "" {
		r.sentence = s
	}
}

// await waits until the sentence has all parts, and logs the time since began.
func (r *reader) await(t *testing.T, what string, began time.Time, parts ...string) {
	t.Helper()
	for {
		r.mu.Lock()
		s, missing := r.sentence, 0
		r.mu.Unlock()
		for _, part := range parts {
			if !strings.Contains(s, part) {
				missing++
			}
		}
		switch took := time.Since(began); {
		case missing == 0:
			t.Logf("%s: %q after %v", what, s, took.Round(time.Millisecond))
			return
		case took > 5*time.Minute:
			t.Fatalf("after 5 minutes the sentence is %q, want %q in it", s, parts)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// processorTime returns that of processes, in all.
func processorTime(t *testing.T, list ...*exec.Cmd) (d time.Duration) {
	t.Helper()
	for _, c := range list {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))
		for _, f := range fields[12:14] { // user and system time, in hundredths of a second
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			d += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return d
}

// TestMany reads the page and the metrics of a job. A process is stopped and goes on. WATCH=512 has so many ranks, in processes of 64, and the stopped one
// has one.
func TestMany(t *testing.T) {
	require.Have(t, "proc", runtime.GOOS == "linux", "/proc tells the processor time on Linux only")
	size, each, window := 16, 1, 3*time.Second
	if text := os.Getenv(manyVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 4 {
			t.Fatalf("%s=%q: want a number of ranks, at least 4", manyVariable, text)
		}
		size, each, window = n, 64, 15*time.Second
	}
	j := startJob(t, size, each, time.Second)
	began := time.Now()
	page := "http://" + j.http + "/"
	r := read(t, page, j.ticket())
	defer r.end()
	r.await(t, fmt.Sprintf("%d processes form", len(j.ranks)), began, fmt.Sprintf("All %d ranks work", size))
	time.Sleep(2 * time.Second)

	r.mu.Lock()
	messages, packed, plain := r.messages, r.packed, r.plain
	r.mu.Unlock()
	spent, spentByRanks := processorTime(t, j.seeds), processorTime(t, j.ranks...)
	began = time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	scrapes, scrapeBytes, slowest := 0, int64(0), time.Duration(0)
	for time.Since(began) < window {
		<-tick.C
		at := time.Now()
		answer, err := http.Get("http://" + j.metrics + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if up := strings.Count(string(text), "\nnexar_rank_up{"); err != nil || up != size || !strings.Contains(string(text), "\nnexar_cluster_up 1\n") {
			t.Errorf("a scrape shows %d ranks, want %d; error %v", up, size, err)
		}
		scrapes, scrapeBytes, slowest = scrapes+1, scrapeBytes+int64(len(text)), max(slowest, time.Since(at))
	}
	took := time.Since(began).Seconds()
	r.mu.Lock()
	n := float64(max(1, r.messages-messages))
	t.Logf("%d messages in %.0f s: %.0f kB each, %.0f kB compressed; the largest has %d kB", r.messages-messages, took, float64(r.plain-plain)/n/1e3, float64(r.packed-packed)/n/1e3, r.largest/1000)
	r.mu.Unlock()
	t.Logf("%d scrapes: %.1f MB each, the slowest takes %v", scrapes, float64(scrapeBytes)/float64(scrapes)/1e6, slowest.Round(time.Millisecond))
	t.Logf("the seed with the page and metrics needs %.1f %% of a processor, all ranks together %.1f %%",
		100*(processorTime(t, j.seeds)-spent).Seconds()/took, 100*(processorTime(t, j.ranks...)-spentByRanks).Seconds()/took)

	stopped := j.ranks[0]
	began = time.Now()
	stopped.Process.Signal(syscall.SIGSTOP)
	r.await(t, "a rank is stopped", began, "has not answered")
	began = time.Now()
	stopped.Process.Signal(syscall.SIGCONT)
	r.await(t, "it goes on", began, fmt.Sprintf("All %d ranks work", size))
	began = time.Now()
	j.order("deadlock")
	r.await(t, "a deadlock", began, "a deadlock")
}
