package nexar

import (
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/transport"
)

// AllocRegistered allocates a vector of n elements outside of the Go heap. The elements are zero. Transports that
// register memory, such as RDMA, keep it registered and send payloads from it without copies; other transports treat it
// like any vector. n must be positive.
//
// The memory is valid until free, which may be called once, when no operation uses the vector. The garbage collector
// does not free it.
func AllocRegistered[T Number](n int) (vector []T, free func(), err error) {
	size := int(unsafe.Sizeof(*new(T)))
	if n < 1 || n > int(^uint(0)>>1)/size {
		return nil, nil, fmt.Errorf("AllocRegistered of %d elements of %d bytes: the length must be positive and the memory addressable", n, size)
	}
	m, err := transport.Map(n * size)
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&m.Bytes()[0])), n), m.Free, nil
}
