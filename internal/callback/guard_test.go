package callback

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

var errWrong = errors.New("a wrong step")

// TestGuard: Check panics with the first panic of the function.
func TestGuard(t *testing.T) {
	for name, test := range map[string]struct {
		f    func()
		want error
	}{
		"returns": {func() {}, nil},
		"panics":  {func() { panic(errWrong) }, errWrong},
		"exits":   {runtime.Goexit, ErrExited},
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			g := &Guard{Label: "the call", Failed: func(error) { failed++ }}
			done := make(chan struct{})
			go func() {
				defer close(done)
				g.Call(test.f)
			}()
			<-done
			g.Call(func() {})
			defer func() {
				p, _ := recover().(*Panic)
				if test.want == nil && (p != nil || failed > 0) {
					t.Errorf("got %v, %d failures", p, failed)
				}
				if test.want != nil && (p == nil || !errors.Is(p, test.want) || failed != 1 || !strings.Contains(p.String(), "the call") || len(p.Stack) == 0) {
					t.Errorf("got %v, %d failures, want %v and one", p, failed, test.want)
				}
			}()
			g.Check()
		})
	}
}

// TestOf: Check of a Guard with a Panic panics with it.
func TestOf(t *testing.T) {
	defer func() {
		if p, ok := recover().(*Panic); !ok || p.Value != 7 || p.Unwrap() != nil {
			t.Errorf("got %v", p)
		}
	}()
	Of(New("the call", 7)).Check()
}
