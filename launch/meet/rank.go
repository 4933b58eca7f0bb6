package meet

import (
	"log/slog"
	"strings"

	"github.com/nexar-go/nexar/launch"
)

// Rank returns this process as its launcher describes it, for a program that knows its seeds and has no rank. Only is the value of NEXAR_LAUNCHER. The Size is
// 0 if there is no launcher, or if its variables are unusable and only does not require it.
func Rank(only string, log *slog.Logger) (launch.Process, error) {
	p, _, err := launch.Find(launch.Here(), only)
	switch {
	case err != nil && only != launch.Auto:
		return launch.Process{}, err
	case err != nil:
		log.Info("no launcher tells the rank of this process, so the seed chooses it", "reason", err)
	case p.Size > 0:
		log.Info("a launcher tells the rank of this process, if the world has that size", "launcher", p.Launcher, "job", p.Job, "rank", p.Rank, "size", p.Size)
	}
	return p, nil
}

// Hints joins the texts of findings for the error without a launcher.
func Hints(findings []launch.Finding) (hints string) {
	for _, f := range findings {
		if hint := "; " + f.Text; !strings.HasSuffix(hints, hint) { // NEXAR_LAUNCHER excludes several for one reason.
			hints += hint
		}
	}
	return hints
}
