//go:build !linux

package yield

import "runtime"

func thread() { runtime.Gosched() }
