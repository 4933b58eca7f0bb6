package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck plants one problem for each platform and expects it on no other.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module m\n\ngo 1.26\n",
		"m.go":            "package m\n\nfunc store(x *int64, y int64)\n",
		"m_arm64.s":       "#include \"textflag.h\"\n\nTEXT ·store(SB), NOSPLIT, $0-8\n\tRET\n",
		"m_amd64.s":       "#include \"textflag.h\"\n\nTEXT ·store(SB), NOSPLIT, $0-16\n\tRET\n",
		"m_windows.go":    "package m\n\nvar _ = undefinedOnWindows\n",
		"m_plan9_test.go": "package m\n\nvar _ = undefinedOnPlan9\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string]string{
		"linux/amd64":   "",
		"darwin/arm64":  "m_arm64.s:3:1: [arm64] store: wrong argument size 8; expected $...-16",
		"windows/amd64": "m_windows.go:3:9: undefined: undefinedOnWindows",
		"plan9/amd64":   "m_plan9_test.go:3:9: undefined: undefinedOnPlan9",
	} {
		problems, err := check(dir, platform, []string{"."})
		if err != nil {
			t.Errorf("%s: %v", platform, err)
			continue
		}
		got := strings.Join(problems, "\n")
		if want == "" && got != "" || !strings.HasSuffix(got, want) || len(problems) > 1 {
			t.Errorf("%s: got %q, want one problem that ends in %q", platform, problems, want)
		}
	}
}
