//race:none its tests start child processes, which the detector does not see

package cluster

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/testbuild"
)

// workerEnv turns the test binary into a worker.
const workerEnv = "CLUSTERTEST_WORKER"

// programs are the command nexar.
var programs = testbuild.Set{Build: func(dir string) error {
	return testbuild.Go("build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "../../cmd/nexar")
}}

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(runWorker(os.Stdin, os.Stdout))
	}
	if order := os.Getenv(blameEnv); order != "" {
		os.Exit(blameRank(order))
	}
	flag.Parse()
	raiseParallel("6")
	goleak.VerifyTestMain(programs.Around(m))
}

// raiseParallel sets -test.parallel to n unless the command line sets it. Most tests here
// sleep, so more of them can run at a time than there are processors.
func raiseParallel(n string) {
	const name = "test.parallel"
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	if !set {
		flag.Set(name, n)
	}
}
