//go:build purego || !(amd64 || arm64)

package kernel

func vectorReducer(t Type, op Op) func(dst, a, b []byte) { return nil }
func vectorDivider(t Type) func(dst []byte, n int)       { return nil }
func vectorStream(dst, src []byte) bool                  { return false }

func vectorWidenFloat16(dst []float32, src []uint16) int  { return 0 }
func vectorWidenBFloat16(dst []float32, src []uint16) int { return 0 }
func vectorRoundFloat16(dst []uint16, src []float32) int  { return 0 }
func vectorRoundBFloat16(dst []uint16, src []float32) int { return 0 }
