/* The part of the CUDA driver's binary interface that the shim uses, declared here so that no toolkit is needed.
 *
 * Constants and signatures are those of the CUDA driver API reference; names carry the version suffix that the library
 * exports. REQUIRED functions exist since CUDA 12.0 or earlier; OPTIONAL ones may be missing. */
#ifndef ZINC_CUDA_ABI_H
#define ZINC_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

typedef struct CUuuid {
    uint8_t bytes[16];
} CUuuid;

/* What `extra` of a launch consists of: arguments in one piece, and the address of their size. */
#define CU_LAUNCH_PARAM_END ((void *)0x00)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x01)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x02)

typedef struct CUDA_KERNEL_NODE_PARAMS {
    CUfunction func;
    unsigned int gridDimX;
    unsigned int gridDimY;
    unsigned int gridDimZ;
    unsigned int blockDimX;
    unsigned int blockDimY;
    unsigned int blockDimZ;
    unsigned int sharedMemBytes;
    void **kernelParams;
    void **extra;
    CUkernel kern; /* used when func is NULL */
    CUcontext ctx; /* ignored when func is set */
} CUDA_KERNEL_NODE_PARAMS;

/* Of the members of this union only these are used. */
typedef union CUlaunchAttributeValue {
    int programmaticStreamSerializationAllowed;
    struct {
        unsigned int x;
        unsigned int y;
        unsigned int z;
    } clusterDim;
    char bytes[64];
} CUlaunchAttributeValue;

typedef struct CUlaunchAttribute {
    int id;
    int pad;
    CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned int gridDimX;
    unsigned int gridDimY;
    unsigned int gridDimZ;
    unsigned int blockDimX;
    unsigned int blockDimY;
    unsigned int blockDimZ;
    unsigned int sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

typedef struct CUgraphEdgeData {
    unsigned char from_port;
    unsigned char to_port;
    unsigned char type;
    unsigned char reserved[5];
} CUgraphEdgeData;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

enum {
    CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};

enum {
    CU_JIT_ERROR_LOG_BUFFER = 5,
    CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};

enum {
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_DISABLE_TIMING = 2,
    CU_MEMHOSTALLOC_PORTABLE = 1,
    CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    CU_STREAM_CAPTURE_STATUS_NONE = 0,
    CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1,
    CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1,
};

/* Resolved as soon as the library is opened: enough to recognise a stub, an old driver and to name errors. */
#define ZINC_CUDA_BOOTSTRAP(F)                                                                                                \
    F(cuInit, (unsigned int flags))                                                                                          \
    F(cuDriverGetVersion, (int *version))                                                                                    \
    F(cuGetErrorName, (CUresult code, const char **name))                                                                    \
    F(cuGetErrorString, (CUresult code, const char **text))

#define ZINC_CUDA_REQUIRED(F)                                                                                                 \
    F(cuDeviceGetCount, (int *count))                                                                                        \
    F(cuDeviceGet, (CUdevice * device, int ordinal))                                                                         \
    F(cuDeviceGetName, (char *name, int length, CUdevice device))                                                            \
    F(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                                                  \
    F(cuDeviceGetPCIBusId, (char *id, int length, CUdevice device))                                                          \
    F(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                                                \
    F(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                                                    \
    F(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                      \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                       \
    F(cuCtxGetCurrent, (CUcontext * context))                                                                                \
    F(cuCtxSetCurrent, (CUcontext context))                                                                                  \
    F(cuCtxPushCurrent_v2, (CUcontext context))                                                                              \
    F(cuCtxPopCurrent_v2, (CUcontext * context))                                                                             \
    F(cuCtxGetDevice, (CUdevice * device))                                                                                   \
    F(cuCtxSynchronize, (void))                                                                                              \
    F(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                                          \
    F(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes))                                                                  \
    F(cuMemFree_v2, (CUdeviceptr address))                                                                                   \
    F(cuMemHostAlloc, (void **address, size_t bytes, unsigned int flags))                                                    \
    F(cuMemFreeHost, (void *address))                                                                                        \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                               \
    F(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                     \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                               \
    F(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))                                 \
    F(cuStreamCreate, (CUstream * stream, unsigned int flags))                                                               \
    F(cuStreamDestroy_v2, (CUstream stream))                                                                                 \
    F(cuStreamSynchronize, (CUstream stream))                                                                                \
    F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                                               \
    F(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                                  \
    F(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                                \
    F(cuStreamIsCapturing, (CUstream stream, int *status))                                                                   \
    F(cuStreamGetCaptureInfo_v2, (CUstream stream, int *status, uint64_t *id, CUgraph *graph,                                \
                                  const CUgraphNode **dependencies, size_t *dependency_count))                               \
    F(cuEventCreate, (CUevent * event, unsigned int flags))                                                                  \
    F(cuEventDestroy_v2, (CUevent event))                                                                                    \
    F(cuEventRecord, (CUevent event, CUstream stream))                                                                       \
    F(cuEventQuery, (CUevent event))                                                                                         \
    F(cuEventSynchronize, (CUevent event))                                                                                   \
    F(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))                                                 \
    F(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned int count, int *options, void **values))           \
    F(cuModuleUnload, (CUmodule module))                                                                                     \
    F(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                                       \
    F(cuFuncGetAttribute, (int *value, int attribute, CUfunction function))                                                  \
    F(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                                                   \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction function, int block, size_t dynamic_shared))     \
    F(cuLaunchKernel, (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,                   \
                       unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,          \
                       CUstream stream, void **parameters, void **extra))                                                    \
    F(cuGraphCreate, (CUgraph * graph, unsigned int flags))                                                                  \
    F(cuGraphDestroy, (CUgraph graph))                                                                                       \
    F(cuGraphAddKernelNode_v2, (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t dependency_count, \
                                const CUDA_KERNEL_NODE_PARAMS *parameters))                                                  \
    F(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                            \
    F(cuGraphExecDestroy, (CUgraphExec exec))                                                                                \
    F(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters))    \
    F(cuGraphNodeSetEnabled, (CUgraphExec exec, CUgraphNode node, unsigned int enabled))                                     \
    F(cuGraphUpload, (CUgraphExec exec, CUstream stream))                                                                    \
    F(cuGraphLaunch, (CUgraphExec exec, CUstream stream))

#define ZINC_CUDA_OPTIONAL(F)                                                                                                 \
    F(cuFuncGetParamInfo, (CUfunction function, size_t index, size_t *offset, size_t *bytes))                                \
    F(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))                \
    F(cuGraphKernelNodeSetAttribute, (CUgraphNode node, int attribute, const CUlaunchAttributeValue *value))                 \
    F(cuGraphAddDependencies_v2, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data, \
                                  size_t count))

#endif
