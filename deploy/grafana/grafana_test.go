//go:build unix

package grafana

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhost"
)

// limit is the time for a query to return data, or for an alert to fire.
const limit = time.Minute

// A dashboard has the fields of a dashboard of Grafana that the tests need.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct {
		List []struct {
			Expr       string
			Datasource datasource
		}
	}
	Panels []struct {
		Title, Type string
		Datasource  datasource
		Targets     []struct {
			Expr       string
			Datasource datasource
		}
	}
}

type datasource struct{ Type, UID string }

func read(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile("dashboard.json")
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDatasource: the data source of all queries is the parameter of the dashboard.
func TestDatasource(t *testing.T) {
	d := read(t)
	if v := d.Templating.List[0]; v.Name != "datasource" || v.Type != "datasource" {
		t.Errorf("the first variable is %+v, want the data source", v)
	}
	want := datasource{"prometheus", "${datasource}"}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Datasource != want || len(p.Targets) == 0 {
			t.Errorf("panel %q has the data source %+v and %d queries", p.Title, p.Datasource, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource != want {
				t.Errorf("a query of panel %q has the data source %+v", p.Title, q.Datasource)
			}
		}
	}
	for _, a := range d.Annotations.List {
		if a.Datasource != want {
			t.Errorf("an annotation has the data source %+v", a.Datasource)
		}
	}
}

// TestMetricsOfQueries: dashboard and alerts use metrics that docs/metrics.md lists.
func TestMetricsOfQueries(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"dashboard.json", "alerts.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`nexar_[a-z_]+`).FindAllString(string(text), -1) {
			if !strings.Contains(string(doc), "`"+strings.TrimSuffix(name, "_bucket")+"`") {
				t.Errorf("%s uses %s, which docs/metrics.md does not list", file, name)
			}
		}
	}
}

// process starts a program until the end of the test, in dir. Its output goes to the log of the test if that fails.
func process(t *testing.T, dir string, env []string, name string, args ...string) (stderr io.Reader) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		kill := time.AfterFunc(limit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		defer kill.Stop()
		_ = cmd.Wait()
	})
	return pipe
}

// drain reads the lines of a process until one matches, and logs the others. It returns the groups of the match.
func drain(t *testing.T, r io.Reader, pattern string) []string {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, r)
			return m
		}
		t.Log(lines.Text())
	}
	t.Fatalf("no line matches %s", pattern)
	return nil
}

// A prometheus is a server that scrapes the cluster.
type prometheus struct{ url string }

// startPrometheus starts a server with the rules, with shorter times, and with native histograms or without.
func startPrometheus(t *testing.T, target string, flags ...string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(rules)
	for from, to := range map[string]string{"[2m]": "[5s]", "for: 2m": "for: 2s", "for: 10s": "for: 1s", "> 120": "> 2", "> 5": "> 1", "< 14400": "< 100000"} {
		if !strings.Contains(text, from) {
			t.Fatalf("alerts.yaml has no %q", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	config := fmt.Sprintf("global: {evaluation_interval: 500ms}\nrule_files: [alerts.yaml]\n"+
		"scrape_configs: [{job_name: nexar, scrape_interval: 1500ms, scrape_timeout: 1500ms, static_configs: [{targets: [%q]}]}]\n", target)
	for name, text := range map[string]string{"alerts.yaml": text, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	addr := testhost.FreePort(t)
	stderr := process(t, dir, nil, "prometheus", append(flags, "--config.file=prometheus.yml", "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)...)
	drain(t, stderr, "Server is ready to receive web requests")
	return &prometheus{"http://" + addr}
}

// get decodes the data of an answer of the API.
func (p *prometheus) get(t *testing.T, path string, query url.Values, data any) {
	t.Helper()
	answer, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	if body.Status != "success" {
		t.Fatalf("%s %v: %s", path, query, body.Error)
	}
	if err := json.Unmarshal(body.Data, data); err != nil {
		t.Fatalf("%s: %v", body.Data, err)
	}
}

// A sample is an element of the result of a query.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query returns the result of a query, without values that are no number.
func (p *prometheus) query(t *testing.T, expr string) (list []sample) {
	t.Helper()
	var data struct{ Result []sample }
	p.get(t, "/api/v1/query", url.Values{"query": {expr}}, &data)
	return slices.DeleteFunc(data.Result, func(s sample) bool { return s.Value[1] == "NaN" })
}

// alerts returns the ranks of firing alerts, by the name of the alert.
func (p *prometheus) alerts(t *testing.T) map[string][]string {
	t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	p.get(t, "/api/v1/alerts", nil, &data)
	ranks := make(map[string][]string)
	for _, a := range data.Alerts {
		if a.State == "firing" {
			ranks[a.Labels["alertname"]] = append(ranks[a.Labels["alertname"]], a.Labels["rank"])
		}
	}
	return ranks
}

// await waits until f returns "", and otherwise fails with its last result.
func await(t *testing.T, f func() string) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		text := f()
		if text == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", limit, text)
		}
	}
}

// isFiring waits until an alert fires for a rank and, if it is the only one, for no other.
func (p *prometheus) isFiring(t *testing.T, alert string, rank int, only bool) {
	t.Helper()
	await(t, func() string {
		ranks := p.alerts(t)[alert]
		if !slices.Contains(ranks, strconv.Itoa(rank)) || only && len(ranks) != 1 {
			return fmt.Sprintf("%s fires for the ranks %q, want %d", alert, ranks, rank)
		}
		return ""
	})
}

// TestDashboard: a Prometheus scrapes eight ranks. One is late. All queries of the dashboard return data, with native histograms and
// without. The alerts fire: for the late rank, for a rank that is stopped while a message goes to it, and, with a longer limit, for the
// certificates.
func TestDashboard(t *testing.T) {
	_, err := exec.LookPath("prometheus")
	require.Have(t, "prometheus", err == nil, "prometheus is not installed: the package prometheus of Debian has it")
	dir, self := t.TempDir(), os.Args[0]
	if self, err = filepath.Abs(self); err != nil {
		t.Fatal(err)
	}
	env := []string{isRank + "=1", "NEXAR_TRANSPORTS=tcp", "NEXAR_PLAIN_BULK=1", "NEXAR_HEARTBEAT_TIMEOUT_SECS=120", "GOMAXPROCS=2"}
	stderr := process(t, dir, env, filepath.Join(programs.Dir(t), "nexar"), "run", "-n", strconv.Itoa(ranks), "--metrics", "0", "--", self)
	target := drain(t, stderr, `metrics: http://(.*)/metrics$`)[1]
	t.Cleanup(func() { _ = os.WriteFile(filepath.Join(dir, ended), nil, 0o600) })
	p := startPrometheus(t, target)
	native := startPrometheus(t, target, "--enable-feature=native-histograms")

	d := read(t)
	short := strings.NewReplacer("$__rate_interval", "5s", "$job", "nexar")
	for _, server := range []*prometheus{p, native} {
		await(t, func() string {
			for _, panel := range d.Panels {
				for _, q := range panel.Targets {
					if expr := short.Replace(q.Expr); len(server.query(t, expr)) == 0 {
						return fmt.Sprintf("panel %q has no data: %s", panel.Title, expr)
					}
				}
			}
			return ""
		})
	}
	for _, a := range d.Annotations.List {
		p.query(t, short.Replace(a.Expr)) // A world that has not changed has no data.
	}
	var jobs []string
	p.get(t, "/api/v1/label/job/values", url.Values{"match[]": {"nexar_world_size"}}, &jobs)
	if !slices.Equal(jobs, []string{"nexar"}) {
		t.Errorf("the jobs are %q", jobs)
	}
	if n := len(p.query(t, "nexar_operation_duration_seconds_bucket")); n == 0 {
		t.Error("without native histograms there are no buckets")
	}
	if n := len(native.query(t, "nexar_operation_duration_seconds_bucket")); n > 0 {
		t.Errorf("with native histograms there are %d other buckets", n)
	}

	p.isFiring(t, "NexarRankLate", lateRank, true)
	p.isFiring(t, "NexarCertificateEnds", 0, false)
	if firing := p.alerts(t); len(firing["NexarRankLost"])+len(firing["NexarLinkStalled"])+len(firing["NexarOperationHangs"]) > 0 {
		t.Errorf("all ranks work, but these alerts fire: %v", firing)
	}

	info := p.query(t, fmt.Sprintf(`nexar_rank_info{rank="%d"}`, stoppedRank))
	_, number, _ := strings.Cut(info[0].Metric["name"], ":")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatalf("the name of rank %d is %q", stoppedRank, info[0].Metric["name"])
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	var stopped time.Time
	await(t, func() string {
		if time.Since(stopped) > 8*time.Second { // If the kernel had taken all of a message before, no link stalls.
			_ = syscall.Kill(pid, syscall.SIGCONT)
			time.Sleep(100 * time.Millisecond)
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			stopped = time.Now()
		}
		if firing := p.alerts(t); !slices.Equal(firing["NexarLinkStalled"], []string{strconv.Itoa(sendingRank)}) {
			return fmt.Sprintf("NexarLinkStalled fires for the ranks %q, want %d", firing["NexarLinkStalled"], sendingRank)
		}
		return ""
	})
	p.isFiring(t, "NexarRankLost", stoppedRank, true)
	p.isFiring(t, "NexarOperationHangs", lateRank, false)
	peer := p.query(t, fmt.Sprintf(`nexar_longest_link_stall_peer{rank="%d"}`, sendingRank))
	if len(peer) != 1 || peer[0].Value[1] != strconv.Itoa(stoppedRank) {
		t.Errorf("the peer of the stalled link is %+v, want rank %d", peer, stoppedRank)
	}
}

// TestRules: promtool accepts the rules as they are.
func TestRules(t *testing.T) {
	_, err := exec.LookPath("promtool")
	require.Have(t, "prometheus", err == nil, "promtool is not installed: the package prometheus of Debian has it")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "promtool", "check", "rules", "alerts.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
