//go:build purego || !(amd64 || arm64)

package kernel

// vectorImplementations are those in assembly.
func vectorImplementations() []implementation { return nil }
