//go:build !linux

package yield

// Hop moves this thread to another processor where that can be asked for.
func Hop() {}
