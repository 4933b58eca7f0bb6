//go:build purego || !(amd64 || arm64)

package kernel

// vectorImplementations returns the assembly implementations.
func vectorImplementations() []implementation { return nil }
