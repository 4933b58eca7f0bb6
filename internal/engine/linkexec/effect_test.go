package linkexec

import (
	"testing"

	"github.com/nexar-go/nexar/internal/engine/exec"
)

// TestPanicOfReduction: a panic of the reduction function is passed on unchanged.
func TestPanicOfReduction(t *testing.T) {
	defer func() {
		if v := recover(); v != "on purpose" {
			t.Errorf("recovered %v", v)
		}
	}()
	r := Execution{work: &exec.Work{Reduce: func(_, _, _ []byte) { panic("on purpose") }}}
	r.reduce(nil, nil, nil)
}
