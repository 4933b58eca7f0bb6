package callback

import "runtime"

// Panicking reports whether the caller runs in a deferred call of a panic of its goroutine, also if the call has recovered from it. The
// runtime tells only the deferred function itself by recover.
func Panicking() bool { return HasCaller("runtime.gopanic") }

// HasCaller reports whether a function, named as package runtime names it, is among the callers of the caller.
func HasCaller(function string) bool {
	pcs := make([]uintptr, 64)
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			if f, more = frames.Next(); f.Function == function {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
