package cudadriver

// A call is a function of the driver.
type call int

const (
	callInit call = iota
	callDriverGetVersion
	callGetErrorName
	callGetErrorString
	callDeviceGetCount
	callDeviceGet
	callDeviceGetName
	callDeviceGetAttribute
	callDeviceGetUuid
	callDeviceTotalMem
	callDevicePrimaryCtxRetain
	callDevicePrimaryCtxRelease
	callDeviceCanAccessPeer
	callCtxSetCurrent
	callCtxEnablePeerAccess
	callMemGetInfo
	callMemAlloc
	callMemFree
	callMemHostAlloc
	callMemFreeHost
	callMemcpyHtoDAsync
	callMemcpyDtoHAsync
	callMemcpyDtoDAsync
	callMemcpyPeerAsync
	callMemcpy2DAsync
	callStreamCreate
	callStreamDestroy
	callStreamWaitEvent
	callEventCreate
	callEventDestroy
	callEventRecord
	callEventQuery
	callModuleLoadDataEx
	callModuleUnload
	callModuleGetFunction
	callLaunchKernel
	callIpcGetMemHandle
	callIpcOpenMemHandle
	callIpcCloseMemHandle
	callMemGetAddressRange
	callMemGetHandleForAddressRange
	callFlushGPUDirectRDMAWrites
	callCount
)

var callNames = [callCount]string{
	callInit:                        "cuInit",
	callDriverGetVersion:            "cuDriverGetVersion",
	callGetErrorName:                "cuGetErrorName",
	callGetErrorString:              "cuGetErrorString",
	callDeviceGetCount:              "cuDeviceGetCount",
	callDeviceGet:                   "cuDeviceGet",
	callDeviceGetName:               "cuDeviceGetName",
	callDeviceGetAttribute:          "cuDeviceGetAttribute",
	callDeviceGetUuid:               "cuDeviceGetUuid_v2",
	callDeviceTotalMem:              "cuDeviceTotalMem_v2",
	callDevicePrimaryCtxRetain:      "cuDevicePrimaryCtxRetain",
	callDevicePrimaryCtxRelease:     "cuDevicePrimaryCtxRelease_v2",
	callDeviceCanAccessPeer:         "cuDeviceCanAccessPeer",
	callCtxSetCurrent:               "cuCtxSetCurrent",
	callCtxEnablePeerAccess:         "cuCtxEnablePeerAccess",
	callMemGetInfo:                  "cuMemGetInfo_v2",
	callMemAlloc:                    "cuMemAlloc_v2",
	callMemFree:                     "cuMemFree_v2",
	callMemHostAlloc:                "cuMemHostAlloc",
	callMemFreeHost:                 "cuMemFreeHost",
	callMemcpyHtoDAsync:             "cuMemcpyHtoDAsync_v2",
	callMemcpyDtoHAsync:             "cuMemcpyDtoHAsync_v2",
	callMemcpyDtoDAsync:             "cuMemcpyDtoDAsync_v2",
	callMemcpyPeerAsync:             "cuMemcpyPeerAsync",
	callMemcpy2DAsync:               "cuMemcpy2DAsync_v2",
	callStreamCreate:                "cuStreamCreate",
	callStreamDestroy:               "cuStreamDestroy_v2",
	callStreamWaitEvent:             "cuStreamWaitEvent",
	callEventCreate:                 "cuEventCreate",
	callEventDestroy:                "cuEventDestroy_v2",
	callEventRecord:                 "cuEventRecord",
	callEventQuery:                  "cuEventQuery",
	callModuleLoadDataEx:            "cuModuleLoadDataEx",
	callModuleUnload:                "cuModuleUnload",
	callModuleGetFunction:           "cuModuleGetFunction",
	callLaunchKernel:                "cuLaunchKernel",
	callIpcGetMemHandle:             "cuIpcGetMemHandle",
	callIpcOpenMemHandle:            "cuIpcOpenMemHandle_v2",
	callIpcCloseMemHandle:           "cuIpcCloseMemHandle",
	callMemGetAddressRange:          "cuMemGetAddressRange_v2",
	callMemGetHandleForAddressRange: "cuMemGetHandleForAddressRange",
	callFlushGPUDirectRDMAWrites:    "cuFlushGPUDirectRDMAWrites",
}

// optional reports whether callers do without the function where the driver lacks it.
func (c call) optional() bool {
	return c == callDeviceGetUuid || c == callMemGetHandleForAddressRange || c == callFlushGPUDirectRDMAWrites
}
