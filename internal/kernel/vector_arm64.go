//go:build !purego

package kernel

// hasNEON reports true: every processor has these instructions.
func hasNEON() bool { return true }

// vectorStream reports false: arm64 has no non-temporal copy here.
func vectorStream(dst, src []byte) bool { return false }
