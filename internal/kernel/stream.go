package kernel

import "unsafe"

// streamAlign is the alignment of dst in bytes for vectorStream.
const streamAlign = 64

// Stream copies src to dst, of the same length, with non-temporal stores if the processor has
// them. That is slower, unless lines of dst are in the caches of distant processors. An
// ordinary store would have to fetch each such line.
func Stream(dst, src []byte) {
	src = src[:len(dst):len(src)]
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % streamAlign)
	end := head + (len(dst)-head)&^(streamAlign-1)
	if end <= head || !vectorStream(dst[head:end], src[head:end]) {
		copy(dst, src)
		return
	}
	copy(dst[:head], src)
	copy(dst[end:], src[end:])
}

// Streamer returns Stream, or nil if Stream is an ordinary copy.
func Streamer() func(dst, src []byte) {
	if vectorStream(nil, nil) {
		return Stream
	}
	return nil
}
