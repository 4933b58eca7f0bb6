package kernel

import "unsafe"

// streamAlign is what Stream wants dst aligned to.
const streamAlign = 64

// Stream copies src to dst, which is as long, past the caches of this processor, if
// it is able to. That is slower, unless lines of dst lie in caches that are far away,
// from which an ordinary store would have to get each.
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

// Streamer is Stream, or nil where that is an ordinary copy.
func Streamer() func(dst, src []byte) {
	if vectorStream(nil, nil) {
		return Stream
	}
	return nil
}
