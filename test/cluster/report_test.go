package cluster

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// reportVariable is the variable with the file for the report of a measurement.
const reportVariable = "REPORT"

// writeReport writes a report to the file that REPORT names, if it is set.
func writeReport(t *testing.T, text string) {
	t.Helper()
	path := os.Getenv(reportVariable)
	if path == "" {
		return
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// commit returns the short hash of the measured revision. It ends with "+" if files differ from the revision.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	hash := strings.TrimSpace(string(out))
	if err := exec.Command("git", "diff", "--quiet", "HEAD").Run(); err != nil {
		hash += "+"
	}
	return hash
}

// machine describes the machine of a measurement.
func machine() string {
	parts := []string{fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), runtime.Version()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		parts = append(parts, "Linux "+strings.TrimSpace(string(release)))
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if _, name, ok := strings.Cut(lines.Text(), "model name\t: "); ok {
				parts = append(parts, name)
				break
			}
		}
	}
	return strings.Join(parts, ", ")
}
