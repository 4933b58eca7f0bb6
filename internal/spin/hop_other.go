//go:build !linux

package spin

import "time"

// Hop does nothing on this system.
func Hop([]int) (to int, hopped bool) { return -1, false }

// First returns 0 on this system.
func First() int { return 0 }

// Processor returns -1 on this system.
func Processor() int { return -1 }

// Return does nothing on this system.
func Return(int) {}

// Delay returns nothing on this system.
func Delay() (d time.Duration, thread int) { return 0, 0 }
