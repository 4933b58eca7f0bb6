package cudadriver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar/internal/require"
)

// TestABI: the layout of structures and the numbers are those of the header of CUDA. The environment
// variable CUDA_INCLUDE has the folder of cuda.h.
func TestABI(t *testing.T) {
	include := os.Getenv("CUDA_INCLUDE")
	if include == "" {
		include = "/usr/local/cuda/include"
	}
	_, err := os.Stat(filepath.Join(include, "cuda.h"))
	require.Have(t, "cuda.h", err == nil, "the header cuda.h is not in "+include+", and CUDA_INCLUDE names no other folder")
	_, err = exec.LookPath("cc")
	require.Have(t, "cc", err == nil, "there is no C compiler")
	var c Memcpy2D
	want := []struct {
		c    string
		ours uintptr
	}{
		{"sizeof(CUDA_MEMCPY2D)", unsafe.Sizeof(c)},
		{"offsetof(CUDA_MEMCPY2D, srcXInBytes)", unsafe.Offsetof(c.SrcXInBytes)},
		{"offsetof(CUDA_MEMCPY2D, srcY)", unsafe.Offsetof(c.SrcY)},
		{"offsetof(CUDA_MEMCPY2D, srcMemoryType)", unsafe.Offsetof(c.SrcMemoryType)},
		{"offsetof(CUDA_MEMCPY2D, srcHost)", unsafe.Offsetof(c.SrcHost)},
		{"offsetof(CUDA_MEMCPY2D, srcDevice)", unsafe.Offsetof(c.SrcDevice)},
		{"offsetof(CUDA_MEMCPY2D, srcArray)", unsafe.Offsetof(c.SrcArray)},
		{"offsetof(CUDA_MEMCPY2D, srcPitch)", unsafe.Offsetof(c.SrcPitch)},
		{"offsetof(CUDA_MEMCPY2D, dstXInBytes)", unsafe.Offsetof(c.DstXInBytes)},
		{"offsetof(CUDA_MEMCPY2D, dstY)", unsafe.Offsetof(c.DstY)},
		{"offsetof(CUDA_MEMCPY2D, dstMemoryType)", unsafe.Offsetof(c.DstMemoryType)},
		{"offsetof(CUDA_MEMCPY2D, dstHost)", unsafe.Offsetof(c.DstHost)},
		{"offsetof(CUDA_MEMCPY2D, dstDevice)", unsafe.Offsetof(c.DstDevice)},
		{"offsetof(CUDA_MEMCPY2D, dstArray)", unsafe.Offsetof(c.DstArray)},
		{"offsetof(CUDA_MEMCPY2D, dstPitch)", unsafe.Offsetof(c.DstPitch)},
		{"offsetof(CUDA_MEMCPY2D, WidthInBytes)", unsafe.Offsetof(c.WidthInBytes)},
		{"offsetof(CUDA_MEMCPY2D, Height)", unsafe.Offsetof(c.Height)},
		{"sizeof(CUipcMemHandle)", unsafe.Sizeof(IpcMemHandle{})},
		{"sizeof(CUuuid)", 16},
		{"sizeof(CUdevice)", unsafe.Sizeof(Device(0))},
		{"CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", AttributeMultiprocessors},
		{"CU_DEVICE_ATTRIBUTE_MAX_PITCH", AttributeMaxPitch},
		{"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", AttributeMajor},
		{"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", AttributeMinor},
		{"CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED", AttributeDmaBuf},
		{"CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED", AttributeDirectRDMA},
		{"CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS", AttributeFlushOptions},
		{"CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING", AttributeWritesOrdering},
		{"CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST", FlushByHost},
		{"CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER", OrderedForOwner},
		{"CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX", 0}, {"CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER", 100},
		{"CU_MEMORYTYPE_HOST", MemoryHost}, {"CU_MEMORYTYPE_DEVICE", MemoryDevice},
		{"CUDA_ERROR_OUT_OF_MEMORY", ErrorOutOfMemory}, {"CUDA_ERROR_NO_DEVICE", ErrorNoDevice},
		{"CUDA_ERROR_INVALID_CONTEXT", ErrorInvalidContext}, {"CUDA_ERROR_NOT_READY", notReady},
		{"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", ErrorPeerAlreadyEnabled}, {"CUDA_ERROR_NOT_SUPPORTED", 801},
		{"CU_STREAM_NON_BLOCKING", 1}, {"CU_EVENT_DISABLE_TIMING", 2}, {"CU_MEMHOSTALLOC_PORTABLE", 1},
		{"CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS", 1}, {"CU_JIT_ERROR_LOG_BUFFER", 5}, {"CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES", 6},
		{"CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD", 1},
	}
	source := "#include <cuda.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
	for _, w := range want {
		source += fmt.Sprintf("\tprintf(\"%%zu\\n\", (size_t)(%s));\n", w.c)
	}
	// The names of functions are macros for their versions.
	source += "#define TEXT(x) #x\n#define NAME(x) TEXT(x)\n"
	for c := range callCount {
		base := strings.TrimSuffix(callNames[c], "_v2")
		source += fmt.Sprintf("\tputs(NAME(%s));\n", base)
	}
	source += "}\n"
	dir := t.TempDir()
	in, out := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	if err := os.WriteFile(in, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("cc", "-I", include, "-o", out, in).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := exec.Command(out).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	if len(lines) != len(want)+int(callCount) {
		t.Fatalf("%d lines, want %d", len(lines), len(want)+int(callCount))
	}
	for i, w := range want {
		if lines[i] != fmt.Sprint(w.ours) {
			t.Errorf("%s is %s in C, and %d here", w.c, lines[i], w.ours)
		}
	}
	for c := range callCount {
		// The header has both versions of this function, the second for parts of a GPU too.
		if got := lines[len(want)+int(c)]; got != callNames[c] && c != callDeviceGetUuid {
			t.Errorf("the header maps %s to %s", callNames[c], got)
		}
	}
}
