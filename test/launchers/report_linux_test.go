package launchers

import (
	"fmt"
	"os"
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
	text := fmt.Sprintf("%d ranks | formed in %.2f s", len(all), slowest.Seconds())
	if epoch > 1 {
		text = fmt.Sprintf("%d ranks go on | formed in %.2f s", len(all), slowest.Seconds())
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

// writeReport writes the table.
func writeReport() error {
	path := os.Getenv(reportVariable)
	if path == "" {
		return nil
	}
	report.Lock()
	defer report.Unlock()
	var names []string
	for name := range report.rows {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		outcome, formed, _ := strings.Cut(report.rows[name], " | ")
		launcher, test, _ := strings.Cut(name, "/")
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", launcher, strings.ReplaceAll(test, "_", " "), outcome, formed)
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}
