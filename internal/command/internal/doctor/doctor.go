// Package doctor checks a machine and an environment for nexar.
//
// Call [Examine] once, before any other use of nexar in the process, since it changes the
// environment of the process. It returns findings, good and bad, with fixes, and no error:
// a check that cannot be made is a finding.
package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/resources"
	"github.com/nexar-go/nexar/launch"
)

// A Status is the severity of a finding.
type Status string

const (
	OK   Status = "ok"
	Note Status = "note" // for information
	Warn Status = "warn" // nexar works with restrictions
	Fail Status = "fail" // nexar does not work
)

// A Finding is the result of one check.
type Finding struct {
	About  string `json:"about"` // "environment", "launcher", "machine", "resources", "joining", "self-test"
	Status Status `json:"status"`
	Text   string `json:"text"`          // the result
	Fix    string `json:"fix,omitempty"` // how to fix the problem, if there is one

	variable string // the name of a malformed variable
	token    string // the token in a file
}

// Examine makes all checks. If seeds is empty, it uses those of NEXAR_SEEDS; without any it does
// not check whether a node could join. It compares limits with the needs of local ranks on this host
// in a world of size ranks. Locks names the links that lock memory, and how much; it is empty if none does.
func Examine(ctx context.Context, seeds []string, local, size int, locks string) []Finding {
	list := examineEnvironment(os.Environ())
	for _, f := range list {
		if f.variable != "" {
			os.Unsetenv(f.variable) // so that further checks do not fail because of it
		} else if f.token != "" { // The file may be a pipe, which can be read only once.
			os.Unsetenv(secretFile)
			os.Setenv(secret, f.token)
		}
	}
	haveSeeds := len(seeds) > 0 || os.Getenv("NEXAR_SEEDS") != ""
	list = append(list, examineLauncher(launch.Here(), haveSeeds)...)
	list = append(list, examineMachine()...)
	list = append(list, examineResources(local, size, locks)...)
	if haveSeeds {
		list = append(list, examineJoin(ctx, seeds)...)
	}
	transports := acrossHosts()
	for _, name := range nexarNames(os.Environ()) {
		os.Unsetenv(name)
	}
	return append(list, selfTest(ctx, transports)...)
}

// Healthy reports whether no finding is Fail.
func Healthy(list []Finding) bool {
	for _, f := range list {
		if f.Status == Fail {
			return false
		}
	}
	return true
}

// examineMachine checks the sockets and settings that Join would use.
func examineMachine() []Finding {
	report, err := nexar.Diagnose(nexar.Config{})
	if err != nil {
		return []Finding{{About: "machine", Status: Fail, Text: err.Error(), Fix: "correct the variables, or unset them"}}
	}
	var list []Finding
	add := func(s Status, format string, args ...any) {
		list = append(list, Finding{About: "machine", Status: s, Text: fmt.Sprintf(format, args...)})
	}
	switch {
	case !works(report):
	case report.UDP:
		add(OK, "a UDP socket can be opened, at %s", report.Listen)
	default:
		add(OK, "a TCP port can be opened, at %s: nodes use no UDP", report.Listen)
	}
	if report.UDP && report.DetectsProcessExit {
		add(OK, "a TCP socket can be opened at the same port, by which peers detect the end of this process at once")
	}
	if len(report.Advertised) > 0 {
		add(OK, "other nodes would dial %s, or the address that the seed sees", strings.Join(report.Advertised, ", "))
	}
	if have := min(report.ReadBuffer, report.WriteBuffer); have > 0 && have >= report.WantedBuffer {
		add(OK, "UDP buffers of %s", humanize.IBytes(uint64(have)))
	}
	if report.GSO {
		add(OK, "the kernel splits large sends into packets (GSO)")
	} else if report.UDP {
		add(Note, "the kernel does not split large sends into packets (no GSO), so sending takes more processor time")
	}
	add(OK, "transports: %s", strings.Join(report.Transports, ", "))
	for _, p := range report.Problems {
		s := Warn
		if p.Fatal {
			s = Fail
		}
		list = append(list, Finding{About: "machine", Status: s, Text: p.Text, Fix: p.Fix})
	}
	return list
}

// examineResources compares limits with the needs of a world.
func examineResources(local, size int, locks string) []Finding {
	var list []Finding
	for _, f := range resources.Check(resources.NewWorld(local, size, os.Getenv("NEXAR_TRANSPORTS"), os.Getenv("NEXAR_LINKS"))) {
		status := map[resources.Level]Status{resources.Enough: OK, resources.Scarce: Warn, resources.Missing: Fail}[f.Level]
		list = append(list, Finding{About: "resources", Status: status, Text: f.Text, Fix: f.Fix})
	}
	memory := "no rank locks memory (memlock)"
	if locks != "" {
		memory = "locked memory (memlock): " + locks + ", and other links lock none"
	}
	return append(list, Finding{About: "resources", Status: OK,
		Text: memory + "; shared memory is anonymous: the size of /dev/shm does not matter"})
}

func works(r nexar.Diagnosis) bool {
	for _, p := range r.Problems {
		if p.Fatal {
			return false
		}
	}
	return true
}

// Write writes findings as text, with the fix of each on the next line.
func Write(w io.Writer, list []Finding) error {
	about := ""
	for _, f := range list {
		if f.About != about {
			about = f.About
			if _, err := fmt.Fprintf(w, "%s\n", about); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "  %-5s %s\n", f.Status, strings.ReplaceAll(f.Text, "\n", "\n        ")); err != nil {
			return err
		}
		if f.Fix != "" {
			if _, err := fmt.Fprintf(w, "        fix: %s\n", f.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}
