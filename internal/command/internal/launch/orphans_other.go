//go:build !linux

package launch

import "os"

// orphans are the descendants of this process that no [child] accounts for.
// This system does not report them: the set is always empty.
type orphans struct{}

// A process is an orphan.
type process struct{ pid int }

func adoptOrphans() *orphans                      { return nil }
func (*orphans) close()                           {}
func (*orphans) reap(map[int]bool)                {}
func (*orphans) none() bool                       { return true }
func (*orphans) terminate(map[int]bool) []process { return nil }
func (*orphans) kill() []process                  { return nil }
func (process) signal(os.Signal)                  {}
func (process) name() string                      { return "" }
func (process) stopped() bool                     { return false }
