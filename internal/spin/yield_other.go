//go:build !linux

package spin

import "runtime"

func thread() { runtime.Gosched() }
