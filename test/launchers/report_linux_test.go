package launchers

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// reportVariable names the file to which the tests write a table of the worlds that launchers have started.
const reportVariable = "LAUNCHERS_REPORT"

// report has the rows of the table by the name of the test.
var report = struct {
	sync.Mutex
	rows map[string]string
}{rows: map[string]string{}}

// record reports that the ranks of a world have ended well.
func record(t *testing.T, all []member) {
	t.Helper()
	var slowest time.Duration
	epoch := 0
	for _, m := range all {
		slowest, epoch = max(slowest, m.Joined), max(epoch, m.Epoch)
	}
	text := fmt.Sprintf("%d ranks | %.2f s", len(all), slowest.Seconds())
	if epoch > 1 {
		text = fmt.Sprintf("%d ranks go on | %.2f s", len(all), slowest.Seconds())
	}
	recordText(t, text)
}

// recordText sets the row of a test. A later row of the same test replaces it.
func recordText(t *testing.T, text string) {
	t.Helper()
	report.Lock()
	defer report.Unlock()
	report.rows[strings.TrimPrefix(t.Name(), "Test")] = text
	t.Cleanup(func() {
		if t.Failed() {
			report.Lock()
			defer report.Unlock()
			report.rows[strings.TrimPrefix(t.Name(), "Test")] = "FAILED"
		}
	})
}

// reportHead precedes the table.
const reportHead = `# Launchers that were tried

Launchers start one unchanged program, which joins with an empty configuration, makes collectives and messages, and verifies the results. All hosts are
daemons on one machine, with host names and process IDs of their own in the case of Slurm. Written by ` + "`make launchers`" + `.

%s/%s, %d processors, %s; %s.

| Launcher | Case | Outcome | Slowest Join |
|---|---|---|---|
`

// writeReport writes the table.
func writeReport() error {
	file := os.Getenv(reportVariable)
	if file == "" {
		return nil
	}
	report.Lock()
	defer report.Unlock()
	var rows []string
	for name, row := range report.rows {
		outcome, formed, _ := strings.Cut(row, " | ")
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", launcherOf(name), caseOf(name), outcome, formed))
	}
	slices.Sort(rows)
	head := fmt.Sprintf(reportHead, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), versions())
	return os.WriteFile(file, []byte(head+strings.Join(rows, "")), 0o600)
}

// launcherOf returns the launcher of a test.
func launcherOf(test string) string {
	for _, l := range [][2]string{{"Intel_MPI", "Intel MPI"}, {"Open_MPI", "Open MPI"}, {"OpenMPI", "Open MPI"}, {"MPICH", "MPICH"}, {"Torchrun", "torchrun"}} {
		if strings.Contains(test, l[0]) {
			return l[1]
		}
	}
	return "Slurm"
}

// words finds the beginnings of words in the name of a test.
var words = regexp.MustCompile("([a-z])([A-Z])|([A-Z])([A-Z][a-z])")

// caseOf writes the name of a test as words.
func caseOf(test string) string {
	name, sub, _ := strings.Cut(test, "/")
	name = words.ReplaceAllString(name, "$1$3 $2$4")
	if sub == "" {
		return name
	}
	return name + ": " + strings.ReplaceAll(sub, "_", " ")
}

// versions returns the launchers with their versions.
func versions() string {
	all := []string{path.Dir(path.Dir(mpich)), path.Dir(path.Dir(intel)), path.Dir(path.Dir(openMPI))}
	if out, err := exec.Command("slurmd", "-V").Output(); err == nil {
		all = append(all, strings.TrimSpace(string(out)))
	}
	if file, err := exec.LookPath("torchrun"); err == nil {
		text, err := os.ReadFile(file)
		if m := regexp.MustCompile(`torch==[0-9.]+`).Find(text); err == nil && m != nil {
			all = append(all, string(m))
		}
	}
	return strings.Join(all, ", ")
}
