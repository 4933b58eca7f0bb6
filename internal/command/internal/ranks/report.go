package ranks

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// rankFileVariable has the path of the file to which a node writes its rank, and which it locks. The variable and the
// file are private to package nexar and this one.
const rankFileVariable = "_NEXAR_RANK_FILE"

// unknownRank is the content of such a file at first. A node changes only a file of this length.
const unknownRank = "           \n"

// reports are the files to which the processes write their ranks.
type reports struct{ dir string }

// newReports makes the files.
func newReports(processes int) (r *reports, err error) {
	r = new(reports)
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.dir, err = makeDir(); err != nil {
		return nil, err
	}
	for i := range processes {
		if err := os.WriteFile(r.path(i), []byte(unknownRank), 0o600); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *reports) path(process int) string { return filepath.Join(r.dir, strconv.Itoa(process)) }

// rank returns the rank that a process has written last. r may be nil.
func (r *reports) rank(process int) (rank string, ok bool) {
	if r == nil {
		return "", false
	}
	b, err := os.ReadFile(r.path(process))
	if err != nil || len(b) != len(unknownRank) {
		return "", false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 31)
	if err != nil {
		return "", false
	}
	return strconv.FormatUint(n, 10), true
}

// close removes the files.
func (r *reports) close() {
	if r != nil && r.dir != "" {
		_ = os.RemoveAll(r.dir) // Nothing depends on the files any more.
	}
}

// makeDir makes a directory that only this user can access.
func makeDir() (string, error) {
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "nexar-")
	if err != nil {
		return os.MkdirTemp("", "nexar-") // The runtime directory may be missing.
	}
	return dir, nil
}
