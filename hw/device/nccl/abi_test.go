package nccl

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/require"
)

// signatures are the types of the functions, for the order and the sizes of their arguments.
var signatures = map[string]string{
	"ncclGetVersion": "ncclResult_t(int*)", "ncclGetUniqueId": "ncclResult_t(ncclUniqueId*)",
	"ncclGetErrorString": "const char*(ncclResult_t)", "ncclGetLastError": "const char*(ncclComm_t)",
	"ncclCommInitRankConfig":   "ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)",
	"ncclCommInitRankScalable": "ncclResult_t(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*)",
	"ncclCommGetAsyncError":    "ncclResult_t(ncclComm_t, ncclResult_t*)",
	"ncclCommAbort":            "ncclResult_t(ncclComm_t)", "ncclCommDestroy": "ncclResult_t(ncclComm_t)",
	"ncclReduceScatter": "ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t)",
	"ncclAllGather":     "ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)",
	"ncclBroadcast":     "ncclResult_t(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)",
	"ncclReduce":        "ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t)",
	"ncclSend":          "ncclResult_t(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)",
	"ncclRecv":          "ncclResult_t(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)",
	"ncclGroupStart":    "ncclResult_t(void)", "ncclGroupEnd": "ncclResult_t(void)",
}

// runtimeHeader stands for the headers of the CUDA runtime that nccl.h includes, so that the toolkit need not be installed.
const runtimeHeader = `#include <stddef.h>
#include <stdint.h>
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
#define __CUDA_BF16_TYPES_EXIST__ 1
`

// TestABI: the layout of structures, the numbers and the types of functions are those of the header of NCCL. The
// environment variable NCCL_INCLUDE has the folder of nccl.h.
func TestABI(t *testing.T) {
	include := os.Getenv("NCCL_INCLUDE")
	if include == "" {
		include = "/usr/include"
	}
	_, err := os.Stat(filepath.Join(include, "nccl.h"))
	require.Have(t, "nccl.h", err == nil, "the header nccl.h is not in "+include+", and NCCL_INCLUDE names no other folder")
	_, err = exec.LookPath("cc")
	require.Have(t, "cc", err == nil, "there is no C compiler")
	var c config
	want := map[string]uintptr{
		"sizeof(ncclUniqueId)": unsafe.Sizeof(uniqueID{}), "sizeof(ncclResult_t)": 4, "sizeof(ncclComm_t)": 8, "sizeof(ncclDataType_t)": 4, "sizeof(ncclRedOp_t)": 4,
		"offsetof(ncclConfig_t, size)": unsafe.Offsetof(c.size), "offsetof(ncclConfig_t, magic)": unsafe.Offsetof(c.magic),
		"offsetof(ncclConfig_t, version)": unsafe.Offsetof(c.version), "offsetof(ncclConfig_t, blocking)": unsafe.Offsetof(c.blocking),
		"sizeof(((ncclConfig_t *)0)->blocking)": unsafe.Sizeof(c.blocking), "((ncclConfig_t)NCCL_CONFIG_INITIALIZER).magic": magic,
		"sizeof(ncclConfig_t) >= 24": 1, "NCCL_VERSION(2, 14, 0)": oldest,
		"ncclSuccess": 0, "ncclInProgress": inProgress,
		"ncclSum": ops[device.Sum], "ncclProd": ops[device.Prod], "ncclMax": ops[device.Max], "ncclMin": ops[device.Min],
		"ncclInt8": types[device.Int8], "ncclUint8": types[device.Uint8], "ncclInt32": types[device.Int32], "ncclUint32": types[device.Uint32],
		"ncclInt64": types[device.Int64], "ncclUint64": types[device.Uint64], "ncclFloat16": types[device.Float16],
		"ncclFloat32": types[device.Float32], "ncclFloat64": types[device.Float64], "ncclBfloat16": types[device.BFloat16],
	}
	if unsafe.Sizeof(c) != 24 {
		t.Errorf("the beginning of ncclConfig_t has %d bytes here, want 24 as in NCCL 2.14", unsafe.Sizeof(c))
	}
	source := "#include <nccl.h>\n#include <stdio.h>\nint main(void) {\n"
	names := slices.Sorted(maps.Keys(want))
	for _, name := range names {
		source += fmt.Sprintf("\tprintf(\"%%zu\\n\", (size_t)(%s));\n", name)
	}
	for _, f := range slices.Sorted(maps.Keys(since)) {
		if f == "ncclCommInitRankScalable" {
			source += "#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)\n"
		}
		result, args, _ := strings.Cut(signatures[f], "(")
		source += fmt.Sprintf("\tif (!__builtin_types_compatible_p(__typeof__(%s), %s(%s)) puts(\"%s is not %s\");\n", f, result, args, f, signatures[f])
		if f == "ncclCommInitRankScalable" {
			source += "#endif\n"
		}
	}
	source += "}\n"
	dir := t.TempDir()
	for name, text := range map[string]string{"abi.c": source, "cuda_runtime.h": runtimeHeader, "cuda_fp16.h": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "abi")
	if text, err := exec.Command("cc", "-I", dir, "-I", include, "-o", program, filepath.Join(dir, "abi.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) < len(names) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(names), text)
	}
	for i, name := range names {
		if lines[i] != fmt.Sprint(want[name]) {
			t.Errorf("%s is %s in C, and %d here", name, lines[i], want[name])
		}
	}
	for _, line := range lines[len(names):] {
		t.Error(line)
	}
}
