package staging

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain makes random tests the same in every run, unless another seed is
// asked for, and makes sure that no test leaves a goroutine behind.
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
