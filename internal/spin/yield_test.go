package spin

import (
	"runtime"
	"testing"
)

// TestOtherGoroutinesRun: with one processor, yields to other processes let other goroutines run.
func TestOtherGoroutinesRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, give := range map[string]func(){"within": Within, "across": Across()} {
		ran := make(chan struct{})
		go close(ran)
		for i := 0; ; i++ {
			give()
			select {
			case <-ran:
			default:
				if i < 1000*goschedOnly {
					continue
				}
				t.Errorf("%s: another goroutine does not run", name)
			}
			break
		}
	}
}
