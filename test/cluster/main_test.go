package cluster

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// workerEnv turns the test binary into a worker.
const workerEnv = "CLUSTERTEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(runWorker(os.Stdin, os.Stdout))
	}
	if order := os.Getenv(blameEnv); order != "" {
		os.Exit(blameRank(order))
	}
	flag.Parse()
	raiseParallel("6")
	goleak.VerifyTestMain(m)
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
