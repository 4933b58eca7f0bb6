package staging

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain gives random tests the same seed in every run, unless a flag sets another one, and checks
// that no test leaves a goroutine.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.seed": "20261121", "rapid.nofailfile": "true"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				panic(err)
			}
		}
	}
	goleak.VerifyTestMain(m)
}
