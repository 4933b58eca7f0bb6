//go:build unix

package page

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testhost"
)

// A job is a seed with a page, and its ranks.
type job struct {
	t          *testing.T
	size       int
	env        []string
	seed, http string
	metrics    string
	orders     string
	output     *os.File
	seeds      *exec.Cmd
	ranks      []*exec.Cmd
}

// startJob starts a job with a number of ranks, which pause between their calls. Processes have up to each ranks, the first one has one.
func startJob(t *testing.T, size, each int, pause time.Duration) *job {
	t.Helper()
	dir := t.TempDir()
	j := &job{t: t, size: size, seed: testhost.FreePort(t), http: testhost.FreePort(t), metrics: testhost.FreePort(t), orders: filepath.Join(dir, "orders")}
	j.env = []string{"NEXAR_CLUSTER_TOKEN=" + nexar.NewToken(), "NEXAR_HEARTBEAT_TIMEOUT_SECS=60", "NEXAR_LISTEN=127.0.0.1:0"}
	j.order("work")
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatal(err)
	}
	j.output = output
	j.startSeed(dir)
	waitFor(t, "http://"+j.http+"/")
	if each > 1 {
		j.env = append(j.env, "NEXAR_TRANSPORTS=tcp")
	}
	for left, n := size, 1; left > 0; left, n = left-n, min(each, left-n) {
		c := exec.Command(os.Args[0])
		c.Env = append(c.Environ(), append(j.env, "NEXAR_SEEDS="+j.seed, orders+"="+j.orders, pauses+"="+pause.String(), nodes+"="+strconv.Itoa(n))...)
		c.Stdout, c.Stderr = output, output
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		j.ranks = append(j.ranks, c)
	}
	t.Cleanup(func() {
		for _, c := range j.ranks {
			c.Process.Signal(syscall.SIGCONT)
			c.Process.Kill()
			c.Wait()
		}
		output.Close()
		if text, err := os.ReadFile(output.Name()); t.Failed() {
			t.Logf("the ranks have printed, with the error %v:\n%s", err, text)
		}
	})
	return j
}

func (j *job) startSeed(dir string) {
	j.t.Helper()
	c := exec.Command(filepath.Join(programs.Dir(j.t), "nexar"), "seed", "--listen", j.seed, "--world", strconv.Itoa(j.size), "--elastic", "--http", j.http, "--metrics", j.metrics, "--state-dir", filepath.Join(dir, "state"))
	c.Env = append(c.Environ(), j.env...)
	c.Stderr = j.output
	if err := c.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.seeds = c
	j.t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
}

func (j *job) order(text string) {
	if err := os.WriteFile(j.orders+".new", []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
	if err := os.Rename(j.orders+".new", j.orders); err != nil {
		j.t.Fatal(err)
	}
}

// ticket returns a ticket of nexar ticket.
func (j *job) ticket() string {
	j.t.Helper()
	c := exec.Command(filepath.Join(programs.Dir(j.t), "nexar"), "ticket")
	c.Env = append(c.Environ(), j.env...)
	out, err := c.Output()
	if err != nil {
		j.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// process returns the process of a rank, as the page names it.
func (j *job) process(b *tab, rank int) *exec.Cmd {
	j.t.Helper()
	text := value[string](b, fmt.Sprintf("[...document.querySelectorAll('.rank th')].find((e) => e.firstChild.textContent === '%d').textContent", rank))
	pid := regexp.MustCompile(`pid (\d+)`).FindStringSubmatch(text)
	for _, c := range j.ranks {
		if pid != nil && strconv.Itoa(c.Process.Pid) == pid[1] {
			return c
		}
	}
	j.t.Fatalf("the page names no process of the job for rank %d: %q", rank, text)
	return nil
}

// TestCluster runs a cluster of 16 processes. Its events stand on the page.
func TestCluster(t *testing.T) {
	b := newTab(t)
	j := startJob(t, 16, 1, 5*time.Millisecond)
	url := "http://" + j.http + "/"
	b.enter(url, j.ticket())
	b.await(time.Now(), time.Minute, "All 16 ranks work")
	say := func(what string, began time.Time, parts ...string) {
		t.Helper()
		took := b.await(began, limit, parts...)
		t.Logf("%s: %q after %v", what, b.sentence(), took.Round(10*time.Millisecond))
	}
	time.Sleep(2 * time.Second)
	b.picture("cluster-works", 1280)

	stopped := j.process(b, 5)
	began := time.Now()
	stopped.Process.Signal(syscall.SIGSTOP)
	say("a rank is stopped", began, "rank 5", "has not answered")
	b.picture("cluster-stopped", 1280)
	began = time.Now()
	stopped.Process.Signal(syscall.SIGCONT)
	say("it goes on", began, "All 16 ranks work")

	killed := j.process(b, 9)
	began = time.Now()
	killed.Process.Kill()
	say("a rank is killed", began, "Rank 9", "was lost", "the other 15 ranks work")
	b.picture("cluster-killed", 1280)

	began = time.Now()
	j.order("deadlock")
	say("a deadlock", began, "barrier", "recv from rank 0", "a deadlock")
	b.picture("cluster-deadlock", 1280)
	b.picture("cluster-deadlock-narrow", 390)

	began = time.Now()
	j.seeds.Process.Kill()
	j.seeds.Wait()
	say("the seed ends", began, "lost its connection")
	b.picture("cluster-lost", 1280)
	began = time.Now()
	j.startSeed(filepath.Dir(j.orders))
	say("the seed restarts", began, "a deadlock")
}

// waitFor waits until a server listens.
func waitFor(t *testing.T, url string) {
	t.Helper()
	for range 3000 {
		if r, err := http.Get(url); err == nil {
			r.Body.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("nothing listens at %s", url)
}
