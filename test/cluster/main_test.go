package cluster

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// workerEnv turns the test binary into a worker.
const workerEnv = "NEXAR_CLUSTERTEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(work(os.Stdin, os.Stdout))
	}
	if order := os.Getenv(blameEnv); order != "" {
		os.Exit(blameRank(order))
	}
	flag.Parse()
	moreParallel("6")
	goleak.VerifyTestMain(m)
}

// moreParallel lets n tests run at the same time, unless the command line says
// how many may: most of them wait for time to pass, which takes no processor.
func moreParallel(n string) {
	const name = "test.parallel"
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	if !set {
		flag.Set(name, n)
	}
}
