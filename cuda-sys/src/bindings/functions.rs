driver_api! {
    #[page = "group__CUDA__ERROR.html"]
    pub fn cuGetErrorString(
        error: CUresult,
        pStr: *mut *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__ERROR.html"]
    pub fn cuGetErrorName(
        error: CUresult,
        pStr: *mut *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__INITIALIZE.html"]
    pub fn cuInit(Flags: ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__VERSION.html"]
    pub fn cuDriverGetVersion(driverVersion: *mut ::core::ffi::c_int) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGet(device: *mut CUdevice, ordinal: ::core::ffi::c_int) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetCount(count: *mut ::core::ffi::c_int) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetName(
        name: *mut ::core::ffi::c_char,
        len: ::core::ffi::c_int,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetLuid(
        luid: *mut ::core::ffi::c_char,
        deviceNodeMask: *mut ::core::ffi::c_uint,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetTexture1DLinearMaxWidth(
        maxWidthInElements: *mut usize,
        format: CUarray_format,
        numChannels: ::core::ffi::c_uint,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetAttribute(
        pi: *mut ::core::ffi::c_int,
        attrib: CUdevice_attribute,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    #[newer]
    pub fn cuDeviceGetHostAtomicCapabilities(
        capabilities: *mut ::core::ffi::c_uint,
        operations: *const CUatomicOperation,
        count: ::core::ffi::c_uint,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetNvSciSyncAttributes(
        nvSciSyncAttrList: *mut ::core::ffi::c_void,
        dev: CUdevice,
        flags: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetDefaultMemPool(
        pool_out: *mut CUmemoryPool,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetExecAffinitySupport(
        pi: *mut ::core::ffi::c_int,
        type_: CUexecAffinityType,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuFlushGPUDirectRDMAWrites(
        target: CUflushGPUDirectRDMAWritesTarget,
        scope: CUflushGPUDirectRDMAWritesScope,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE__DEPRECATED.html"]
    pub fn cuDeviceGetProperties(prop: *mut CUdevprop, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__DEVICE__DEPRECATED.html"]
    pub fn cuDeviceComputeCapability(
        major: *mut ::core::ffi::c_int,
        minor: *mut ::core::ffi::c_int,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__PRIMARY__CTX.html"]
    pub fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__PRIMARY__CTX.html"]
    pub fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__PRIMARY__CTX.html"]
    pub fn cuDevicePrimaryCtxSetFlags_v2(
        dev: CUdevice,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__PRIMARY__CTX.html"]
    pub fn cuDevicePrimaryCtxGetState(
        dev: CUdevice,
        flags: *mut ::core::ffi::c_uint,
        active: *mut ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__PRIMARY__CTX.html"]
    pub fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    #[newer]
    pub fn cuCtxCreate_v4(
        pctx: *mut CUcontext,
        ctxCreateParams: *mut CUctxCreateParams,
        flags: ::core::ffi::c_uint,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxDestroy_v2(ctx: CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxPushCurrent_v2(ctx: CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxSetCurrent(ctx: CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetCurrent(pctx: *mut CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    #[newer]
    pub fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetFlags(flags: *mut ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    #[newer]
    pub fn cuCtxSetFlags(flags: ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    #[newer]
    pub fn cuCtxGetId(ctx: CUcontext, ctxId: *mut ::core::ffi::c_ulonglong) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxSynchronize() -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    #[newer]
    pub fn cuCtxSynchronize_v2(ctx: CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxSetCacheConfig(config: CUfunc_cache) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetApiVersion(
        ctx: CUcontext,
        version: *mut ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetStreamPriorityRange(
        leastPriority: *mut ::core::ffi::c_int,
        greatestPriority: *mut ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxResetPersistingL2Cache() -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxGetExecAffinity(
        pExecAffinity: *mut CUexecAffinityParam,
        type_: CUexecAffinityType,
    ) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    #[newer]
    pub fn cuCtxRecordEvent(hCtx: CUcontext, hEvent: CUevent) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    #[newer]
    pub fn cuCtxWaitEvent(hCtx: CUcontext, hEvent: CUevent) -> CUresult;
    #[page = "group__CUDA__CTX__DEPRECATED.html"]
    pub fn cuCtxAttach(pctx: *mut CUcontext, flags: ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__CTX__DEPRECATED.html"]
    pub fn cuCtxDetach(ctx: CUcontext) -> CUresult;
    #[page = "group__CUDA__CTX__DEPRECATED.html"]
    pub fn cuCtxGetSharedMemConfig(pConfig: *mut CUsharedconfig) -> CUresult;
    #[page = "group__CUDA__CTX__DEPRECATED.html"]
    pub fn cuCtxSetSharedMemConfig(config: CUsharedconfig) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleLoad(
        module: *mut CUmodule,
        fname: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleLoadData(
        module: *mut CUmodule,
        image: *const ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const ::core::ffi::c_void,
        numOptions: ::core::ffi::c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleLoadFatBinary(
        module: *mut CUmodule,
        fatCubin: *const ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleUnload(hmod: CUmodule) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleGetFunction(
        hfunc: *mut CUfunction,
        hmod: CUmodule,
        name: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    #[newer]
    pub fn cuModuleGetFunctionCount(
        count: *mut ::core::ffi::c_uint,
        mod_: CUmodule,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    #[newer]
    pub fn cuModuleEnumerateFunctions(
        functions: *mut CUfunction,
        numFunctions: ::core::ffi::c_uint,
        mod_: CUmodule,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuModuleGetGlobal_v2(
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        hmod: CUmodule,
        name: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuLinkCreate_v2(
        numOptions: ::core::ffi::c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut ::core::ffi::c_void,
        stateOut: *mut CUlinkState,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuLinkAddData_v2(
        state: CUlinkState,
        type_: CUjitInputType,
        data: *mut ::core::ffi::c_void,
        size: usize,
        name: *const ::core::ffi::c_char,
        numOptions: ::core::ffi::c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuLinkAddFile_v2(
        state: CUlinkState,
        type_: CUjitInputType,
        path: *const ::core::ffi::c_char,
        numOptions: ::core::ffi::c_uint,
        options: *mut CUjit_option,
        optionValues: *mut *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuLinkComplete(
        state: CUlinkState,
        cubinOut: *mut *mut ::core::ffi::c_void,
        sizeOut: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE.html"]
    pub fn cuLinkDestroy(state: CUlinkState) -> CUresult;
    #[page = "group__CUDA__MODULE__DEPRECATED.html"]
    pub fn cuModuleGetTexRef(
        pTexRef: *mut CUtexref,
        hmod: CUmodule,
        name: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__MODULE__DEPRECATED.html"]
    pub fn cuModuleGetSurfRef(
        pSurfRef: *mut CUsurfref,
        hmod: CUmodule,
        name: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryLoadData(
        library: *mut CUlibrary,
        code: *const ::core::ffi::c_void,
        jitOptions: *mut CUjit_option,
        jitOptionsValues: *mut *mut ::core::ffi::c_void,
        numJitOptions: ::core::ffi::c_uint,
        libraryOptions: *mut CUlibraryOption,
        libraryOptionValues: *mut *mut ::core::ffi::c_void,
        numLibraryOptions: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryLoadFromFile(
        library: *mut CUlibrary,
        fileName: *const ::core::ffi::c_char,
        jitOptions: *mut CUjit_option,
        jitOptionsValues: *mut *mut ::core::ffi::c_void,
        numJitOptions: ::core::ffi::c_uint,
        libraryOptions: *mut CUlibraryOption,
        libraryOptionValues: *mut *mut ::core::ffi::c_void,
        numLibraryOptions: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryUnload(library: CUlibrary) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryGetKernel(
        pKernel: *mut CUkernel,
        library: CUlibrary,
        name: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryGetKernelCount(
        count: *mut ::core::ffi::c_uint,
        lib: CUlibrary,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryEnumerateKernels(
        kernels: *mut CUkernel,
        numKernels: ::core::ffi::c_uint,
        lib: CUlibrary,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryGetModule(pMod: *mut CUmodule, library: CUlibrary) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelGetFunction(pFunc: *mut CUfunction, kernel: CUkernel) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelGetLibrary(pLib: *mut CUlibrary, kernel: CUkernel) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryGetGlobal(
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryGetManaged(
        dptr: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuLibraryGetUnifiedFunction(
        fptr: *mut *mut ::core::ffi::c_void,
        library: CUlibrary,
        symbol: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelGetAttribute(
        pi: *mut ::core::ffi::c_int,
        attrib: CUfunction_attribute,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelSetAttribute(
        attrib: CUfunction_attribute,
        val: ::core::ffi::c_int,
        kernel: CUkernel,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelSetCacheConfig(
        kernel: CUkernel,
        config: CUfunc_cache,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelGetName(
        name: *mut *const ::core::ffi::c_char,
        hfunc: CUkernel,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelGetParamInfo(
        kernel: CUkernel,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__LIBRARY.html"]
    #[newer]
    pub fn cuKernelGetParamCount(kernel: CUkernel, paramCount: *mut usize) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemAllocPitch_v2(
        dptr: *mut CUdeviceptr,
        pPitch: *mut usize,
        WidthInBytes: usize,
        Height: usize,
        ElementSizeBytes: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemFree_v2(dptr: CUdeviceptr) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemGetAddressRange_v2(
        pbase: *mut CUdeviceptr,
        psize: *mut usize,
        dptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemAllocHost_v2(
        pp: *mut *mut ::core::ffi::c_void,
        bytesize: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemFreeHost(p: *mut ::core::ffi::c_void) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemHostAlloc(
        pp: *mut *mut ::core::ffi::c_void,
        bytesize: usize,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemHostGetDevicePointer_v2(
        pdptr: *mut CUdeviceptr,
        p: *mut ::core::ffi::c_void,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemHostGetFlags(
        pFlags: *mut ::core::ffi::c_uint,
        p: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemAllocManaged(
        dptr: *mut CUdeviceptr,
        bytesize: usize,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuDeviceRegisterAsyncNotification(
        device: CUdevice,
        callbackFunc: CUasyncCallback,
        userData: *mut ::core::ffi::c_void,
        callback: *mut CUasyncCallbackHandle,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuDeviceUnregisterAsyncNotification(
        device: CUdevice,
        callback: CUasyncCallbackHandle,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuDeviceGetByPCIBusId(
        dev: *mut CUdevice,
        pciBusId: *const ::core::ffi::c_char,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuDeviceGetPCIBusId(
        pciBusId: *mut ::core::ffi::c_char,
        len: ::core::ffi::c_int,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuIpcGetEventHandle(
        pHandle: *mut CUipcEventHandle,
        event: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuIpcOpenEventHandle(
        phEvent: *mut CUevent,
        handle: CUipcEventHandle,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuIpcGetMemHandle(
        pHandle: *mut CUipcMemHandle,
        dptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuIpcOpenMemHandle_v2(
        pdptr: *mut CUdeviceptr,
        handle: CUipcMemHandle,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuIpcCloseMemHandle(dptr: CUdeviceptr) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemHostRegister_v2(
        p: *mut ::core::ffi::c_void,
        bytesize: usize,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemHostUnregister(p: *mut ::core::ffi::c_void) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyPeer(
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyHtoD_v2(
        dstDevice: CUdeviceptr,
        srcHost: *const ::core::ffi::c_void,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyDtoH_v2(
        dstHost: *mut ::core::ffi::c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyDtoD_v2(
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyDtoA_v2(
        dstArray: CUarray,
        dstOffset: usize,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyAtoD_v2(
        dstDevice: CUdeviceptr,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyHtoA_v2(
        dstArray: CUarray,
        dstOffset: usize,
        srcHost: *const ::core::ffi::c_void,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyAtoH_v2(
        dstHost: *mut ::core::ffi::c_void,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyAtoA_v2(
        dstArray: CUarray,
        dstOffset: usize,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy2D_v2(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D_PEER) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyAsync(
        dst: CUdeviceptr,
        src: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyPeerAsync(
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyHtoDAsync_v2(
        dstDevice: CUdeviceptr,
        srcHost: *const ::core::ffi::c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyDtoHAsync_v2(
        dstHost: *mut ::core::ffi::c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyDtoDAsync_v2(
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyHtoAAsync_v2(
        dstArray: CUarray,
        dstOffset: usize,
        srcHost: *const ::core::ffi::c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpyAtoHAsync_v2(
        dstHost: *mut ::core::ffi::c_void,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy2DAsync_v2(
        pCopy: *const CUDA_MEMCPY2D,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy3DAsync_v2(
        pCopy: *const CUDA_MEMCPY3D,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemcpy3DPeerAsync(
        pCopy: *const CUDA_MEMCPY3D_PEER,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuMemcpyBatchAsync_v2(
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuMemcpy3DBatchAsync_v2(
        numOps: usize,
        opList: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: ::core::ffi::c_ulonglong,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuMemcpyWithAttributesAsync(
        dst: CUdeviceptr,
        src: CUdeviceptr,
        size: usize,
        attr: *mut CUmemcpyAttributes,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuMemcpy3DWithAttributesAsync(
        op: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: ::core::ffi::c_ulonglong,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD8_v2(
        dstDevice: CUdeviceptr,
        uc: ::core::ffi::c_uchar,
        N: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD16_v2(
        dstDevice: CUdeviceptr,
        us: ::core::ffi::c_ushort,
        N: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD32_v2(
        dstDevice: CUdeviceptr,
        ui: ::core::ffi::c_uint,
        N: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD2D8_v2(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: ::core::ffi::c_uchar,
        Width: usize,
        Height: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD2D16_v2(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: ::core::ffi::c_ushort,
        Width: usize,
        Height: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD2D32_v2(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: ::core::ffi::c_uint,
        Width: usize,
        Height: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD8Async(
        dstDevice: CUdeviceptr,
        uc: ::core::ffi::c_uchar,
        N: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD16Async(
        dstDevice: CUdeviceptr,
        us: ::core::ffi::c_ushort,
        N: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD32Async(
        dstDevice: CUdeviceptr,
        ui: ::core::ffi::c_uint,
        N: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD2D8Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: ::core::ffi::c_uchar,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD2D16Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: ::core::ffi::c_ushort,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemsetD2D32Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: ::core::ffi::c_uint,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArrayCreate_v2(
        pHandle: *mut CUarray,
        pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArrayGetDescriptor_v2(
        pArrayDescriptor: *mut CUDA_ARRAY_DESCRIPTOR,
        hArray: CUarray,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArrayGetSparseProperties(
        sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        array: CUarray,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMipmappedArrayGetSparseProperties(
        sparseProperties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        mipmap: CUmipmappedArray,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArrayGetMemoryRequirements(
        memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        array: CUarray,
        device: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMipmappedArrayGetMemoryRequirements(
        memoryRequirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        mipmap: CUmipmappedArray,
        device: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArrayGetPlane(
        pPlaneArray: *mut CUarray,
        hArray: CUarray,
        planeIdx: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArrayDestroy(hArray: CUarray) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArray3DCreate_v2(
        pHandle: *mut CUarray,
        pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuArray3DGetDescriptor_v2(
        pArrayDescriptor: *mut CUDA_ARRAY3D_DESCRIPTOR,
        hArray: CUarray,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMipmappedArrayCreate(
        pHandle: *mut CUmipmappedArray,
        pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR,
        numMipmapLevels: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMipmappedArrayGetLevel(
        pLevelArray: *mut CUarray,
        hMipmappedArray: CUmipmappedArray,
        level: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    pub fn cuMemGetHandleForAddressRange(
        handle: *mut ::core::ffi::c_void,
        dptr: CUdeviceptr,
        size: usize,
        handleType: CUmemRangeHandleType,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuMemBatchDecompressAsync(
        paramsArray: *mut CUmemDecompressParams,
        count: usize,
        flags: ::core::ffi::c_uint,
        errorIndex: *mut usize,
        stream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemAddressReserve(
        ptr: *mut CUdeviceptr,
        size: usize,
        alignment: usize,
        addr: CUdeviceptr,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle,
        size: usize,
        prop: *const CUmemAllocationProp,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemMap(
        ptr: CUdeviceptr,
        size: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemMapArrayAsync(
        mapInfoList: *mut CUarrayMapInfo,
        count: ::core::ffi::c_uint,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemUnmap(ptr: CUdeviceptr, size: usize) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemSetAccess(
        ptr: CUdeviceptr,
        size: usize,
        desc: *const CUmemAccessDesc,
        count: usize,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemGetAccess(
        flags: *mut ::core::ffi::c_ulonglong,
        location: *const CUmemLocation,
        ptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemExportToShareableHandle(
        shareableHandle: *mut ::core::ffi::c_void,
        handle: CUmemGenericAllocationHandle,
        handleType: CUmemAllocationHandleType,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemImportFromShareableHandle(
        handle: *mut CUmemGenericAllocationHandle,
        osHandle: *mut ::core::ffi::c_void,
        shHandleType: CUmemAllocationHandleType,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemGetAllocationGranularity(
        granularity: *mut usize,
        prop: *const CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemGetAllocationPropertiesFromHandle(
        prop: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> CUresult;
    #[page = "group__CUDA__VA.html"]
    pub fn cuMemRetainAllocationHandle(
        handle: *mut CUmemGenericAllocationHandle,
        addr: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemFreeAsync(dptr: CUdeviceptr, hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemAllocAsync(
        dptr: *mut CUdeviceptr,
        bytesize: usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolTrimTo(pool: CUmemoryPool, minBytesToKeep: usize) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolSetAttribute(
        pool: CUmemoryPool,
        attr: CUmemPool_attribute,
        value: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolGetAttribute(
        pool: CUmemoryPool,
        attr: CUmemPool_attribute,
        value: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolSetAccess(
        pool: CUmemoryPool,
        map: *const CUmemAccessDesc,
        count: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolGetAccess(
        flags: *mut CUmemAccess_flags,
        memPool: CUmemoryPool,
        location: *mut CUmemLocation,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolCreate(
        pool: *mut CUmemoryPool,
        poolProps: *const CUmemPoolProps,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolDestroy(pool: CUmemoryPool) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    #[newer]
    pub fn cuMemGetDefaultMemPool(
        pool_out: *mut CUmemoryPool,
        location: *mut CUmemLocation,
        type_: CUmemAllocationType,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    #[newer]
    pub fn cuMemGetMemPool(
        pool: *mut CUmemoryPool,
        location: *mut CUmemLocation,
        type_: CUmemAllocationType,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    #[newer]
    pub fn cuMemSetMemPool(
        location: *mut CUmemLocation,
        type_: CUmemAllocationType,
        pool: CUmemoryPool,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemAllocFromPoolAsync(
        dptr: *mut CUdeviceptr,
        bytesize: usize,
        pool: CUmemoryPool,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolExportToShareableHandle(
        handle_out: *mut ::core::ffi::c_void,
        pool: CUmemoryPool,
        handleType: CUmemAllocationHandleType,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolImportFromShareableHandle(
        pool_out: *mut CUmemoryPool,
        handle: *mut ::core::ffi::c_void,
        handleType: CUmemAllocationHandleType,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolExportPointer(
        shareData_out: *mut CUmemPoolPtrExportData,
        ptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__MALLOC__ASYNC.html"]
    pub fn cuMemPoolImportPointer(
        ptr_out: *mut CUdeviceptr,
        pool: CUmemoryPool,
        shareData: *mut CUmemPoolPtrExportData,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastCreate(
        mcHandle: *mut CUmemGenericAllocationHandle,
        prop: *const CUmulticastObjectProp,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastAddDevice(
        mcHandle: CUmemGenericAllocationHandle,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastBindMem(
        mcHandle: CUmemGenericAllocationHandle,
        mcOffset: usize,
        memHandle: CUmemGenericAllocationHandle,
        memOffset: usize,
        size: usize,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastBindMem_v2(
        mcHandle: CUmemGenericAllocationHandle,
        dev: CUdevice,
        mcOffset: usize,
        memHandle: CUmemGenericAllocationHandle,
        memOffset: usize,
        size: usize,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastBindAddr(
        mcHandle: CUmemGenericAllocationHandle,
        mcOffset: usize,
        memptr: CUdeviceptr,
        size: usize,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastBindAddr_v2(
        mcHandle: CUmemGenericAllocationHandle,
        dev: CUdevice,
        mcOffset: usize,
        memptr: CUdeviceptr,
        size: usize,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastUnbind(
        mcHandle: CUmemGenericAllocationHandle,
        dev: CUdevice,
        mcOffset: usize,
        size: usize,
    ) -> CUresult;
    #[page = "group__CUDA__MULTICAST.html"]
    #[newer]
    pub fn cuMulticastGetGranularity(
        granularity: *mut usize,
        prop: *const CUmulticastObjectProp,
        option: CUmulticastGranularity_flags,
    ) -> CUresult;
    #[page = "group__CUDA__CLIQUE.html"]
    #[newer]
    pub fn cuDeviceGetFabricClusterUuid(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__CLIQUE.html"]
    #[newer]
    pub fn cuDeviceGetCliqueCount(count: *mut usize, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__CLIQUE.html"]
    #[newer]
    pub fn cuDeviceGetCliqueInfo(
        cliqueInfo: *mut CUcliqueInfo,
        count: *mut usize,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointIdReserve(
        baseLeId: *mut CUlogicalEndpointId,
        count: cuuint32_t,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointIdRelease(
        baseLeId: CUlogicalEndpointId,
        count: cuuint32_t,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointCreate(
        leId: CUlogicalEndpointId,
        prop: *const CUlogicalEndpointProp,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointAddDevice(
        leId: CUlogicalEndpointId,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointDestroy(leId: CUlogicalEndpointId) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointBindAddr(
        leId: CUlogicalEndpointId,
        dev: CUdevice,
        offset: cuuint64_t,
        ptr: *mut ::core::ffi::c_void,
        size: cuuint64_t,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointBindMem(
        leId: CUlogicalEndpointId,
        dev: CUdevice,
        offset: cuuint64_t,
        memHandle: CUmemGenericAllocationHandle,
        memOffset: cuuint64_t,
        size: cuuint64_t,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointUnbind(
        leId: CUlogicalEndpointId,
        dev: CUdevice,
        offset: cuuint64_t,
        size: cuuint64_t,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointExport(
        handle: *mut ::core::ffi::c_void,
        leId: CUlogicalEndpointId,
        handleType: CUlogicalEndpointIpcHandleType,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointImport(
        leId: CUlogicalEndpointId,
        handle: *const ::core::ffi::c_void,
        handleType: CUlogicalEndpointIpcHandleType,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointGetLimits(
        bindAlignment: *mut cuuint64_t,
        maxSize: *mut cuuint64_t,
        prop: *const CUlogicalEndpointProp,
    ) -> CUresult;
    #[page = "group__CUDA__LOGICAL__ENDPOINT.html"]
    #[newer]
    pub fn cuLogicalEndpointQuery(
        leId: CUlogicalEndpointId,
        count: cuuint32_t,
        queryStatus: *mut ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__FABRIC__COPY.html"]
    #[newer]
    pub fn cuFabricCpyBatchAsync(
        numOps: usize,
        opList: *mut CUDA_FABRIC_COPY_BATCH_OP,
        flags: ::core::ffi::c_ulonglong,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    pub fn cuPointerGetAttribute(
        data: *mut ::core::ffi::c_void,
        attribute: CUpointer_attribute,
        ptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    #[newer]
    pub fn cuMemPrefetchAsync_v2(
        devPtr: CUdeviceptr,
        count: usize,
        location: CUmemLocation,
        flags: ::core::ffi::c_uint,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    #[newer]
    pub fn cuMemAdvise_v2(
        devPtr: CUdeviceptr,
        count: usize,
        advice: CUmem_advise,
        location: CUmemLocation,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    #[newer]
    pub fn cuMemPrefetchBatchAsync(
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        prefetchLocs: *mut CUmemLocation,
        prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: ::core::ffi::c_ulonglong,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    #[newer]
    pub fn cuMemDiscardBatchAsync(
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        flags: ::core::ffi::c_ulonglong,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    #[newer]
    pub fn cuMemDiscardAndPrefetchBatchAsync(
        dptrs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        prefetchLocs: *mut CUmemLocation,
        prefetchLocIdxs: *mut usize,
        numPrefetchLocs: usize,
        flags: ::core::ffi::c_ulonglong,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    #[newer]
    pub fn cuMemGetLocationInfo(
        ptr: CUdeviceptr,
        size: usize,
        summaryGranularity: usize,
        samplingGranularity: usize,
        location_out: *mut CUmemLocation,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    pub fn cuMemRangeGetAttribute(
        data: *mut ::core::ffi::c_void,
        dataSize: usize,
        attribute: CUmem_range_attribute,
        devPtr: CUdeviceptr,
        count: usize,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    pub fn cuMemRangeGetAttributes(
        data: *mut *mut ::core::ffi::c_void,
        dataSizes: *mut usize,
        attributes: *mut CUmem_range_attribute,
        numAttributes: usize,
        devPtr: CUdeviceptr,
        count: usize,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    pub fn cuPointerSetAttribute(
        value: *const ::core::ffi::c_void,
        attribute: CUpointer_attribute,
        ptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    pub fn cuPointerGetAttributes(
        numAttributes: ::core::ffi::c_uint,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut ::core::ffi::c_void,
        ptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamCreate(
        phStream: *mut CUstream,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamCreateWithPriority(
        phStream: *mut CUstream,
        flags: ::core::ffi::c_uint,
        priority: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamBeginCaptureToCig(
        hStream: CUstream,
        streamCigCaptureParams: *mut CUstreamCigCaptureParams,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamEndCaptureToCig(hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamGetPriority(
        hStream: CUstream,
        priority: *mut ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamGetDevice(hStream: CUstream, device: *mut CUdevice) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamGetFlags(
        hStream: CUstream,
        flags: *mut ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamGetId(
        hStream: CUstream,
        streamId: *mut ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamGetCtx(hStream: CUstream, pctx: *mut CUcontext) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamGetCtx_v2(
        hStream: CUstream,
        pCtx: *mut CUcontext,
        pGreenCtx: *mut CUgreenCtx,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamWaitEvent(
        hStream: CUstream,
        hEvent: CUevent,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamAddCallback(
        hStream: CUstream,
        callback: CUstreamCallback,
        userData: *mut ::core::ffi::c_void,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamBeginCapture_v2(
        hStream: CUstream,
        mode: CUstreamCaptureMode,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamBeginRecaptureToGraph(
        hStream: CUstream,
        mode: CUstreamCaptureMode,
        hGraph: CUgraph,
        callbackFunc: CUgraphRecaptureCallback,
        userData: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamBeginCaptureToGraph(
        hStream: CUstream,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        mode: CUstreamCaptureMode,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamEndCapture(hStream: CUstream, phGraph: *mut CUgraph) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamIsCapturing(
        hStream: CUstream,
        captureStatus: *mut CUstreamCaptureStatus,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamGetCaptureInfo_v3(
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        edgeData_out: *mut *const CUgraphEdgeData,
        numDependencies_out: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    #[newer]
    pub fn cuStreamUpdateCaptureDependencies_v2(
        hStream: CUstream,
        dependencies: *mut CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamAttachMemAsync(
        hStream: CUstream,
        dptr: CUdeviceptr,
        length: usize,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamQuery(hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamSynchronize(hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamDestroy_v2(hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamGetAttribute(
        hStream: CUstream,
        attr: CUstreamAttrID,
        value_out: *mut CUstreamAttrValue,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamSetAttribute(
        hStream: CUstream,
        attr: CUstreamAttrID,
        value: *const CUstreamAttrValue,
    ) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    pub fn cuEventCreate(phEvent: *mut CUevent, Flags: ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    pub fn cuEventRecord(hEvent: CUevent, hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    pub fn cuEventRecordWithFlags(
        hEvent: CUevent,
        hStream: CUstream,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    pub fn cuEventQuery(hEvent: CUevent) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    pub fn cuEventSynchronize(hEvent: CUevent) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    pub fn cuEventDestroy_v2(hEvent: CUevent) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    #[newer]
    pub fn cuEventElapsedTime_v2(
        pMilliseconds: *mut f32,
        hStart: CUevent,
        hEnd: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuImportExternalMemory(
        extMem_out: *mut CUexternalMemory,
        memHandleDesc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuExternalMemoryGetMappedBuffer(
        devPtr: *mut CUdeviceptr,
        extMem: CUexternalMemory,
        bufferDesc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
    ) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuExternalMemoryGetMappedMipmappedArray(
        mipmap: *mut CUmipmappedArray,
        extMem: CUexternalMemory,
        mipmapDesc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
    ) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuDestroyExternalMemory(extMem: CUexternalMemory) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuImportExternalSemaphore(
        extSem_out: *mut CUexternalSemaphore,
        semHandleDesc: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
    ) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuSignalExternalSemaphoresAsync(
        extSemArray: *const CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
        numExtSems: ::core::ffi::c_uint,
        stream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuWaitExternalSemaphoresAsync(
        extSemArray: *const CUexternalSemaphore,
        paramsArray: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
        numExtSems: ::core::ffi::c_uint,
        stream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__EXTRES__INTEROP.html"]
    pub fn cuDestroyExternalSemaphore(extSem: CUexternalSemaphore) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWaitValue32_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWaitValue64_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWriteValue32_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWriteValue64_v2(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamBatchMemOp_v2(
        stream: CUstream,
        count: ::core::ffi::c_uint,
        paramArray: *mut CUstreamBatchMemOpParams,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuFuncGetAttribute(
        pi: *mut ::core::ffi::c_int,
        attrib: CUfunction_attribute,
        hfunc: CUfunction,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuFuncSetAttribute(
        hfunc: CUfunction,
        attrib: CUfunction_attribute,
        value: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuFuncGetModule(hmod: *mut CUmodule, hfunc: CUfunction) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    #[newer]
    pub fn cuFuncGetName(
        name: *mut *const ::core::ffi::c_char,
        hfunc: CUfunction,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    #[newer]
    pub fn cuFuncGetParamInfo(
        func: CUfunction,
        paramIndex: usize,
        paramOffset: *mut usize,
        paramSize: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    #[newer]
    pub fn cuFuncGetParamCount(func: CUfunction, paramCount: *mut usize) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    #[newer]
    pub fn cuFuncIsLoaded(
        state: *mut CUfunctionLoadingState,
        function: CUfunction,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    #[newer]
    pub fn cuFuncLoad(function: CUfunction) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuLaunchKernel(
        f: CUfunction,
        gridDimX: ::core::ffi::c_uint,
        gridDimY: ::core::ffi::c_uint,
        gridDimZ: ::core::ffi::c_uint,
        blockDimX: ::core::ffi::c_uint,
        blockDimY: ::core::ffi::c_uint,
        blockDimZ: ::core::ffi::c_uint,
        sharedMemBytes: ::core::ffi::c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut ::core::ffi::c_void,
        extra: *mut *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        f: CUfunction,
        kernelParams: *mut *mut ::core::ffi::c_void,
        extra: *mut *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuLaunchCooperativeKernel(
        f: CUfunction,
        gridDimX: ::core::ffi::c_uint,
        gridDimY: ::core::ffi::c_uint,
        gridDimZ: ::core::ffi::c_uint,
        blockDimX: ::core::ffi::c_uint,
        blockDimY: ::core::ffi::c_uint,
        blockDimZ: ::core::ffi::c_uint,
        sharedMemBytes: ::core::ffi::c_uint,
        hStream: CUstream,
        kernelParams: *mut *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    pub fn cuLaunchHostFunc(
        hStream: CUstream,
        fn_: CUhostFn,
        userData: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC.html"]
    #[newer]
    pub fn cuLaunchHostFunc_v2(
        hStream: CUstream,
        fn_: CUhostFn,
        userData: *mut ::core::ffi::c_void,
        syncMode: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuFuncSetBlockShape(
        hfunc: CUfunction,
        x: ::core::ffi::c_int,
        y: ::core::ffi::c_int,
        z: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuFuncSetSharedSize(
        hfunc: CUfunction,
        bytes: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuParamSetSize(hfunc: CUfunction, numbytes: ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuParamSeti(
        hfunc: CUfunction,
        offset: ::core::ffi::c_int,
        value: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuParamSetf(
        hfunc: CUfunction,
        offset: ::core::ffi::c_int,
        value: f32,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuParamSetv(
        hfunc: CUfunction,
        offset: ::core::ffi::c_int,
        ptr: *mut ::core::ffi::c_void,
        numbytes: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuLaunch(f: CUfunction) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuLaunchGrid(
        f: CUfunction,
        grid_width: ::core::ffi::c_int,
        grid_height: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuLaunchGridAsync(
        f: CUfunction,
        grid_width: ::core::ffi::c_int,
        grid_height: ::core::ffi::c_int,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuLaunchCooperativeKernelMultiDevice(
        launchParamsList: *mut CUDA_LAUNCH_PARAMS,
        numDevices: ::core::ffi::c_uint,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuParamSetTexRef(
        hfunc: CUfunction,
        texunit: ::core::ffi::c_int,
        hTexRef: CUtexref,
    ) -> CUresult;
    #[page = "group__CUDA__EXEC__DEPRECATED.html"]
    pub fn cuFuncSetSharedMemConfig(
        hfunc: CUfunction,
        config: CUsharedconfig,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphCreate(phGraph: *mut CUgraph, flags: ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphAddKernelNode_v2(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphKernelNodeGetParams_v2(
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphKernelNodeSetParams_v2(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddMemcpyNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphMemcpyNodeGetParams(
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_MEMCPY3D,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphMemcpyNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_MEMCPY3D,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddMemsetNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphMemsetNodeGetParams(
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_MEMSET_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphMemsetNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_MEMSET_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddHostNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphHostNodeGetParams(
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphHostNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddChildGraphNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        childGraph: CUgraph,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphChildGraphNodeGetGraph(
        hNode: CUgraphNode,
        phGraph: *mut CUgraph,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddEmptyNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddEventRecordNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphEventRecordNodeGetEvent(
        hNode: CUgraphNode,
        event_out: *mut CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphEventRecordNodeSetEvent(
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddEventWaitNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphEventWaitNodeGetEvent(
        hNode: CUgraphNode,
        event_out: *mut CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphEventWaitNodeSetEvent(hNode: CUgraphNode, event: CUevent) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddExternalSemaphoresSignalNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExternalSemaphoresSignalNodeGetParams(
        hNode: CUgraphNode,
        params_out: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExternalSemaphoresSignalNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddExternalSemaphoresWaitNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExternalSemaphoresWaitNodeGetParams(
        hNode: CUgraphNode,
        params_out: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExternalSemaphoresWaitNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddBatchMemOpNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphBatchMemOpNodeGetParams(
        hNode: CUgraphNode,
        nodeParams_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphBatchMemOpNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecBatchMemOpNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddMemAllocNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphMemAllocNodeGetParams(
        hNode: CUgraphNode,
        params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddMemFreeNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        dptr: CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphMemFreeNodeGetParams(
        hNode: CUgraphNode,
        dptr_out: *mut CUdeviceptr,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuDeviceGraphMemTrim(device: CUdevice) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuDeviceGetGraphMemAttribute(
        device: CUdevice,
        attr: CUgraphMem_attribute,
        value: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuDeviceSetGraphMemAttribute(
        device: CUdevice,
        attr: CUgraphMem_attribute,
        value: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphClone(phGraphClone: *mut CUgraph, originalGraph: CUgraph) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphNodeFindInClone(
        phNode: *mut CUgraphNode,
        hOriginalNode: CUgraphNode,
        hClonedGraph: CUgraph,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphNodeGetType(
        hNode: CUgraphNode,
        type_: *mut CUgraphNodeType,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeGetContainingGraph(
        hNode: CUgraphNode,
        phGraph: *mut CUgraph,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeGetLocalId(
        hNode: CUgraphNode,
        nodeId: *mut ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeGetToolsId(
        hNode: CUgraphNode,
        toolsNodeId: *mut ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphGetId(hGraph: CUgraph, graphId: *mut ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphExecGetId(
        hGraphExec: CUgraphExec,
        graphId: *mut ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphGetNodes(
        hGraph: CUgraph,
        nodes: *mut CUgraphNode,
        numNodes: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphGetRootNodes(
        hGraph: CUgraph,
        rootNodes: *mut CUgraphNode,
        numRootNodes: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphGetEdges_v2(
        hGraph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numEdges: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeGetDependencies_v2(
        hNode: CUgraphNode,
        dependencies: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numDependencies: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeGetDependentNodes_v2(
        hNode: CUgraphNode,
        dependentNodes: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numDependentNodes: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphAddDependencies_v2(
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphRemoveDependencies_v2(
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphDestroyNode(hNode: CUgraphNode) -> CUresult;
    #[page = "index.html"]
    pub fn cuGraphInstantiateWithFlags(
        phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        flags: ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphInstantiateWithParams(
        phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphExecGetFlags(
        hGraphExec: CUgraphExec,
        flags: *mut cuuint64_t,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphExecKernelNodeSetParams_v2(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecMemcpyNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecMemsetNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecHostNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecChildGraphNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        childGraph: CUgraph,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecEventRecordNodeSetEvent(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecEventWaitNodeSetEvent(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        event: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphNodeSetEnabled(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        isEnabled: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphNodeGetEnabled(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        isEnabled: *mut ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphUpload(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphLaunch(hGraphExec: CUgraphExec, hStream: CUstream) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecDestroy(hGraphExec: CUgraphExec) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphDestroy(hGraph: CUgraph) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphExecUpdate_v2(
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        resultInfo: *mut CUgraphExecUpdateResultInfo,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphKernelNodeCopyAttributes(
        dst: CUgraphNode,
        src: CUgraphNode,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphKernelNodeGetAttribute(
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
        value_out: *mut CUkernelNodeAttrValue,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphKernelNodeSetAttribute(
        hNode: CUgraphNode,
        attr: CUkernelNodeAttrID,
        value: *const CUkernelNodeAttrValue,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphDebugDotPrint(
        hGraph: CUgraph,
        path: *const ::core::ffi::c_char,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuUserObjectCreate(
        object_out: *mut CUuserObject,
        ptr: *mut ::core::ffi::c_void,
        destroy: CUhostFn,
        initialRefcount: ::core::ffi::c_uint,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuUserObjectRetain(
        object: CUuserObject,
        count: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuUserObjectRelease(
        object: CUuserObject,
        count: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphRetainUserObject(
        graph: CUgraph,
        object: CUuserObject,
        count: ::core::ffi::c_uint,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphReleaseUserObject(
        graph: CUgraph,
        object: CUuserObject,
        count: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphAddNode_v2(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphAddNode_v3(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeSetParams_v2(
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphNodeGetParams(
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphExecNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphConditionalHandleCreate(
        pHandle_out: *mut CUgraphConditionalHandle,
        hGraph: CUgraph,
        ctx: CUcontext,
        defaultLaunchValue: ::core::ffi::c_uint,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__OCCUPANCY.html"]
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        numBlocks: *mut ::core::ffi::c_int,
        func: CUfunction,
        blockSize: ::core::ffi::c_int,
        dynamicSMemSize: usize,
    ) -> CUresult;
    #[page = "group__CUDA__OCCUPANCY.html"]
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        numBlocks: *mut ::core::ffi::c_int,
        func: CUfunction,
        blockSize: ::core::ffi::c_int,
        dynamicSMemSize: usize,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__OCCUPANCY.html"]
    pub fn cuOccupancyMaxPotentialBlockSize(
        minGridSize: *mut ::core::ffi::c_int,
        blockSize: *mut ::core::ffi::c_int,
        func: CUfunction,
        blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__OCCUPANCY.html"]
    pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        minGridSize: *mut ::core::ffi::c_int,
        blockSize: *mut ::core::ffi::c_int,
        func: CUfunction,
        blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
        dynamicSMemSize: usize,
        blockSizeLimit: ::core::ffi::c_int,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__OCCUPANCY.html"]
    pub fn cuOccupancyAvailableDynamicSMemPerBlock(
        dynamicSmemSize: *mut usize,
        func: CUfunction,
        numBlocks: ::core::ffi::c_int,
        blockSize: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__OCCUPANCY.html"]
    pub fn cuOccupancyMaxPotentialClusterSize(
        clusterSize: *mut ::core::ffi::c_int,
        func: CUfunction,
        config: *const CUlaunchConfig,
    ) -> CUresult;
    #[page = "group__CUDA__OCCUPANCY.html"]
    pub fn cuOccupancyMaxActiveClusters(
        numClusters: *mut ::core::ffi::c_int,
        func: CUfunction,
        config: *const CUlaunchConfig,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetArray(
        hTexRef: CUtexref,
        hArray: CUarray,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetMipmappedArray(
        hTexRef: CUtexref,
        hMipmappedArray: CUmipmappedArray,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetAddress_v2(
        ByteOffset: *mut usize,
        hTexRef: CUtexref,
        dptr: CUdeviceptr,
        bytes: usize,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetAddress2D_v3(
        hTexRef: CUtexref,
        desc: *const CUDA_ARRAY_DESCRIPTOR,
        dptr: CUdeviceptr,
        Pitch: usize,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetFormat(
        hTexRef: CUtexref,
        fmt: CUarray_format,
        NumPackedComponents: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetAddressMode(
        hTexRef: CUtexref,
        dim: ::core::ffi::c_int,
        am: CUaddress_mode,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetFilterMode(hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetMipmapFilterMode(hTexRef: CUtexref, fm: CUfilter_mode) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetMipmapLevelBias(hTexRef: CUtexref, bias: f32) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetMipmapLevelClamp(
        hTexRef: CUtexref,
        minMipmapLevelClamp: f32,
        maxMipmapLevelClamp: f32,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetMaxAnisotropy(
        hTexRef: CUtexref,
        maxAniso: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetBorderColor(hTexRef: CUtexref, pBorderColor: *mut f32) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefSetFlags(hTexRef: CUtexref, Flags: ::core::ffi::c_uint) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetAddress_v2(pdptr: *mut CUdeviceptr, hTexRef: CUtexref) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetArray(phArray: *mut CUarray, hTexRef: CUtexref) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetMipmappedArray(
        phMipmappedArray: *mut CUmipmappedArray,
        hTexRef: CUtexref,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetAddressMode(
        pam: *mut CUaddress_mode,
        hTexRef: CUtexref,
        dim: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetFilterMode(pfm: *mut CUfilter_mode, hTexRef: CUtexref) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetFormat(
        pFormat: *mut CUarray_format,
        pNumChannels: *mut ::core::ffi::c_int,
        hTexRef: CUtexref,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetMipmapFilterMode(
        pfm: *mut CUfilter_mode,
        hTexRef: CUtexref,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetMipmapLevelBias(pbias: *mut f32, hTexRef: CUtexref) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetMipmapLevelClamp(
        pminMipmapLevelClamp: *mut f32,
        pmaxMipmapLevelClamp: *mut f32,
        hTexRef: CUtexref,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetMaxAnisotropy(
        pmaxAniso: *mut ::core::ffi::c_int,
        hTexRef: CUtexref,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetBorderColor(pBorderColor: *mut f32, hTexRef: CUtexref) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefGetFlags(
        pFlags: *mut ::core::ffi::c_uint,
        hTexRef: CUtexref,
    ) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefCreate(pTexRef: *mut CUtexref) -> CUresult;
    #[page = "group__CUDA__TEXREF__DEPRECATED.html"]
    pub fn cuTexRefDestroy(hTexRef: CUtexref) -> CUresult;
    #[page = "group__CUDA__SURFREF__DEPRECATED.html"]
    pub fn cuSurfRefSetArray(
        hSurfRef: CUsurfref,
        hArray: CUarray,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__SURFREF__DEPRECATED.html"]
    pub fn cuSurfRefGetArray(phArray: *mut CUarray, hSurfRef: CUsurfref) -> CUresult;
    #[page = "group__CUDA__TEXOBJECT.html"]
    pub fn cuTexObjectCreate(
        pTexObject: *mut CUtexObject,
        pResDesc: *const CUDA_RESOURCE_DESC,
        pTexDesc: *const CUDA_TEXTURE_DESC,
        pResViewDesc: *const CUDA_RESOURCE_VIEW_DESC,
    ) -> CUresult;
    #[page = "group__CUDA__TEXOBJECT.html"]
    pub fn cuTexObjectDestroy(texObject: CUtexObject) -> CUresult;
    #[page = "group__CUDA__TEXOBJECT.html"]
    pub fn cuTexObjectGetResourceDesc(
        pResDesc: *mut CUDA_RESOURCE_DESC,
        texObject: CUtexObject,
    ) -> CUresult;
    #[page = "group__CUDA__TEXOBJECT.html"]
    pub fn cuTexObjectGetTextureDesc(
        pTexDesc: *mut CUDA_TEXTURE_DESC,
        texObject: CUtexObject,
    ) -> CUresult;
    #[page = "group__CUDA__TEXOBJECT.html"]
    pub fn cuTexObjectGetResourceViewDesc(
        pResViewDesc: *mut CUDA_RESOURCE_VIEW_DESC,
        texObject: CUtexObject,
    ) -> CUresult;
    #[page = "group__CUDA__SURFOBJECT.html"]
    pub fn cuSurfObjectCreate(
        pSurfObject: *mut CUsurfObject,
        pResDesc: *const CUDA_RESOURCE_DESC,
    ) -> CUresult;
    #[page = "group__CUDA__SURFOBJECT.html"]
    pub fn cuSurfObjectDestroy(surfObject: CUsurfObject) -> CUresult;
    #[page = "group__CUDA__SURFOBJECT.html"]
    pub fn cuSurfObjectGetResourceDesc(
        pResDesc: *mut CUDA_RESOURCE_DESC,
        surfObject: CUsurfObject,
    ) -> CUresult;
    #[page = "group__CUDA__TENSOR__MEMORY.html"]
    #[newer]
    pub fn cuTensorMapEncodeTiled(
        tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        globalAddress: *mut ::core::ffi::c_void,
        globalDim: *const cuuint64_t,
        globalStrides: *const cuuint64_t,
        boxDim: *const cuuint32_t,
        elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult;
    #[page = "group__CUDA__TENSOR__MEMORY.html"]
    #[newer]
    pub fn cuTensorMapEncodeIm2col(
        tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        globalAddress: *mut ::core::ffi::c_void,
        globalDim: *const cuuint64_t,
        globalStrides: *const cuuint64_t,
        pixelBoxLowerCorner: *const ::core::ffi::c_int,
        pixelBoxUpperCorner: *const ::core::ffi::c_int,
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult;
    #[page = "group__CUDA__TENSOR__MEMORY.html"]
    #[newer]
    pub fn cuTensorMapEncodeIm2colWide(
        tensorMap: *mut CUtensorMap,
        tensorDataType: CUtensorMapDataType,
        tensorRank: cuuint32_t,
        globalAddress: *mut ::core::ffi::c_void,
        globalDim: *const cuuint64_t,
        globalStrides: *const cuuint64_t,
        pixelBoxLowerCornerWidth: ::core::ffi::c_int,
        pixelBoxUpperCornerWidth: ::core::ffi::c_int,
        channelsPerPixel: cuuint32_t,
        pixelsPerColumn: cuuint32_t,
        elementStrides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        mode: CUtensorMapIm2ColWideMode,
        swizzle: CUtensorMapSwizzle,
        l2Promotion: CUtensorMapL2promotion,
        oobFill: CUtensorMapFloatOOBfill,
    ) -> CUresult;
    #[page = "group__CUDA__TENSOR__MEMORY.html"]
    #[newer]
    pub fn cuTensorMapReplaceAddress(
        tensorMap: *mut CUtensorMap,
        globalAddress: *mut ::core::ffi::c_void,
    ) -> CUresult;
    #[page = "group__CUDA__TENSOR__MEMORY.html"]
    #[newer]
    pub fn cuTensorMapSetAllocationClass(
        tensorMap: *mut CUtensorMap,
        allocClass: CUtensorMapAllocClass,
        outAllocClass: *mut CUtensorMapAllocClass,
    ) -> CUresult;
    #[page = "group__CUDA__PEER__ACCESS.html"]
    pub fn cuDeviceCanAccessPeer(
        canAccessPeer: *mut ::core::ffi::c_int,
        dev: CUdevice,
        peerDev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__PEER__ACCESS.html"]
    pub fn cuCtxEnablePeerAccess(
        peerContext: CUcontext,
        Flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__PEER__ACCESS.html"]
    pub fn cuCtxDisablePeerAccess(peerContext: CUcontext) -> CUresult;
    #[page = "group__CUDA__PEER__ACCESS.html"]
    pub fn cuDeviceGetP2PAttribute(
        value: *mut ::core::ffi::c_int,
        attrib: CUdevice_P2PAttribute,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__PEER__ACCESS.html"]
    #[newer]
    pub fn cuDeviceGetP2PAtomicCapabilities(
        capabilities: *mut ::core::ffi::c_uint,
        operations: *const CUatomicOperation,
        count: ::core::ffi::c_uint,
        srcDevice: CUdevice,
        dstDevice: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPHICS.html"]
    pub fn cuGraphicsUnregisterResource(resource: CUgraphicsResource) -> CUresult;
    #[page = "group__CUDA__GRAPHICS.html"]
    pub fn cuGraphicsSubResourceGetMappedArray(
        pArray: *mut CUarray,
        resource: CUgraphicsResource,
        arrayIndex: ::core::ffi::c_uint,
        mipLevel: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPHICS.html"]
    pub fn cuGraphicsResourceGetMappedMipmappedArray(
        pMipmappedArray: *mut CUmipmappedArray,
        resource: CUgraphicsResource,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPHICS.html"]
    pub fn cuGraphicsResourceGetMappedPointer_v2(
        pDevPtr: *mut CUdeviceptr,
        pSize: *mut usize,
        resource: CUgraphicsResource,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPHICS.html"]
    pub fn cuGraphicsResourceSetMapFlags_v2(
        resource: CUgraphicsResource,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPHICS.html"]
    pub fn cuGraphicsMapResources(
        count: ::core::ffi::c_uint,
        resources: *mut CUgraphicsResource,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPHICS.html"]
    pub fn cuGraphicsUnmapResources(
        count: ::core::ffi::c_uint,
        resources: *mut CUgraphicsResource,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__DRIVER__ENTRY__POINT.html"]
    #[newer]
    pub fn cuGetProcAddress_v2(
        symbol: *const ::core::ffi::c_char,
        pfn: *mut *mut ::core::ffi::c_void,
        cudaVersion: ::core::ffi::c_int,
        flags: cuuint64_t,
        symbolStatus: *mut CUdriverProcAddressQueryResult,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpGetAttribute(
        attrib: CUcoredumpSettings,
        value: *mut ::core::ffi::c_void,
        size: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpGetAttributeGlobal(
        attrib: CUcoredumpSettings,
        value: *mut ::core::ffi::c_void,
        size: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpSetAttribute(
        attrib: CUcoredumpSettings,
        value: *mut ::core::ffi::c_void,
        size: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpSetAttributeGlobal(
        attrib: CUcoredumpSettings,
        value: *mut ::core::ffi::c_void,
        size: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpRegisterStartCallback(
        callback: CUcoredumpStatusCallback,
        userData: *mut ::core::ffi::c_void,
        callbackOut: *mut CUcoredumpCallbackHandle,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpRegisterCompleteCallback(
        callback: CUcoredumpStatusCallback,
        userData: *mut ::core::ffi::c_void,
        callbackOut: *mut CUcoredumpCallbackHandle,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpDeregisterStartCallback(
        callback: CUcoredumpCallbackHandle,
    ) -> CUresult;
    #[page = "group__CUDA__COREDUMP.html"]
    #[newer]
    pub fn cuCoredumpDeregisterCompleteCallback(
        callback: CUcoredumpCallbackHandle,
    ) -> CUresult;
    #[page = "index.html"]
    pub fn cuGetExportTable(
        ppExportTable: *mut *const ::core::ffi::c_void,
        pExportTableId: *const CUuuid,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuGreenCtxCreate(
        phCtx: *mut CUgreenCtx,
        desc: CUdevResourceDesc,
        dev: CUdevice,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuGreenCtxDestroy(hCtx: CUgreenCtx) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuCtxFromGreenCtx(pContext: *mut CUcontext, hCtx: CUgreenCtx) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuDeviceGetDevResource(
        device: CUdevice,
        resource: *mut CUdevResource,
        type_: CUdevResourceType,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuCtxGetDevResource(
        hCtx: CUcontext,
        resource: *mut CUdevResource,
        type_: CUdevResourceType,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuGreenCtxGetDevResource(
        hCtx: CUgreenCtx,
        resource: *mut CUdevResource,
        type_: CUdevResourceType,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuDevSmResourceSplitByCount(
        result: *mut CUdevResource,
        nbGroups: *mut ::core::ffi::c_uint,
        input: *const CUdevResource,
        remainder: *mut CUdevResource,
        flags: ::core::ffi::c_uint,
        minCount: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuDevSmResourceSplit(
        result: *mut CUdevResource,
        nbGroups: ::core::ffi::c_uint,
        input: *const CUdevResource,
        remainder: *mut CUdevResource,
        flags: ::core::ffi::c_uint,
        groupParams: *mut CU_DEV_SM_RESOURCE_GROUP_PARAMS,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuDevResourceGenerateDesc(
        phDesc: *mut CUdevResourceDesc,
        resources: *mut CUdevResource,
        nbResources: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuGreenCtxRecordEvent(hCtx: CUgreenCtx, hEvent: CUevent) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuGreenCtxWaitEvent(hCtx: CUgreenCtx, hEvent: CUevent) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuStreamGetGreenCtx(hStream: CUstream, phCtx: *mut CUgreenCtx) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuGreenCtxStreamCreate(
        phStream: *mut CUstream,
        greenCtx: CUgreenCtx,
        flags: ::core::ffi::c_uint,
        priority: ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuGreenCtxGetId(
        greenCtx: CUgreenCtx,
        greenCtxId: *mut ::core::ffi::c_ulonglong,
    ) -> CUresult;
    #[page = "group__CUDA__GREEN__CONTEXTS.html"]
    #[newer]
    pub fn cuStreamGetDevResource(
        hStream: CUstream,
        resource: *mut CUdevResource,
        type_: CUdevResourceType,
    ) -> CUresult;
    #[page = "group__CUDA__LOGS.html"]
    #[newer]
    pub fn cuLogsRegisterCallback(
        callbackFunc: CUlogsCallback,
        userData: *mut ::core::ffi::c_void,
        callback_out: *mut CUlogsCallbackHandle,
    ) -> CUresult;
    #[page = "group__CUDA__LOGS.html"]
    #[newer]
    pub fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle) -> CUresult;
    #[page = "group__CUDA__LOGS.html"]
    #[newer]
    pub fn cuLogsCurrent(
        iterator_out: *mut CUlogIterator,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__LOGS.html"]
    #[newer]
    pub fn cuLogsDumpToFile(
        iterator: *mut CUlogIterator,
        pathToFile: *const ::core::ffi::c_char,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__LOGS.html"]
    #[newer]
    pub fn cuLogsDumpToMemory(
        iterator: *mut CUlogIterator,
        buffer: *mut ::core::ffi::c_char,
        size: *mut usize,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__CHECKPOINT.html"]
    #[newer]
    pub fn cuCheckpointProcessGetRestoreThreadId(
        pid: ::core::ffi::c_int,
        tid: *mut ::core::ffi::c_int,
    ) -> CUresult;
    #[page = "group__CUDA__CHECKPOINT.html"]
    #[newer]
    pub fn cuCheckpointProcessGetState(
        pid: ::core::ffi::c_int,
        state: *mut CUprocessState,
    ) -> CUresult;
    #[page = "group__CUDA__CHECKPOINT.html"]
    #[newer]
    pub fn cuCheckpointProcessLock(
        pid: ::core::ffi::c_int,
        args: *mut CUcheckpointLockArgs,
    ) -> CUresult;
    #[page = "group__CUDA__CHECKPOINT.html"]
    #[newer]
    pub fn cuCheckpointProcessCheckpoint(
        pid: ::core::ffi::c_int,
        args: *mut CUcheckpointCheckpointArgs,
    ) -> CUresult;
    #[page = "group__CUDA__CHECKPOINT.html"]
    #[newer]
    pub fn cuCheckpointProcessRestore(
        pid: ::core::ffi::c_int,
        args: *mut CUcheckpointRestoreArgs,
    ) -> CUresult;
    #[page = "group__CUDA__CHECKPOINT.html"]
    #[newer]
    pub fn cuCheckpointOperationComplete(
        handle: CUcheckpointOperationHandle,
    ) -> CUresult;
    #[page = "group__CUDA__CHECKPOINT.html"]
    #[newer]
    pub fn cuCheckpointProcessUnlock(
        pid: ::core::ffi::c_int,
        args: *mut CUcheckpointUnlockArgs,
    ) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxCreate_v2(
        pctx: *mut CUcontext,
        flags: ::core::ffi::c_uint,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__CTX.html"]
    pub fn cuCtxCreate_v3(
        pctx: *mut CUcontext,
        paramsArray: *mut CUexecAffinityParam,
        numParams: ::core::ffi::c_int,
        flags: ::core::ffi::c_uint,
        dev: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__EVENT.html"]
    pub fn cuEventElapsedTime(
        pMilliseconds: *mut f32,
        hStart: CUevent,
        hEnd: CUevent,
    ) -> CUresult;
    #[page = "group__CUDA__DEVICE.html"]
    pub fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuMemcpyBatchAsync(
        dsts: *mut CUdeviceptr,
        srcs: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        attrs: *mut CUmemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        failIdx: *mut usize,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEM.html"]
    #[newer]
    pub fn cuMemcpy3DBatchAsync(
        numOps: usize,
        opList: *mut CUDA_MEMCPY3D_BATCH_OP,
        failIdx: *mut usize,
        flags: ::core::ffi::c_ulonglong,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWriteValue32(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWaitValue32(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint32_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWriteValue64(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamWaitValue64(
        stream: CUstream,
        addr: CUdeviceptr,
        value: cuuint64_t,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__MEMOP.html"]
    pub fn cuStreamBatchMemOp(
        stream: CUstream,
        count: ::core::ffi::c_uint,
        paramArray: *mut CUstreamBatchMemOpParams,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    pub fn cuMemPrefetchAsync(
        devPtr: CUdeviceptr,
        count: usize,
        dstDevice: CUdevice,
        hStream: CUstream,
    ) -> CUresult;
    #[page = "group__CUDA__UNIFIED.html"]
    pub fn cuMemAdvise(
        devPtr: CUdeviceptr,
        count: usize,
        advice: CUmem_advise,
        device: CUdevice,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamGetCaptureInfo(
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamGetCaptureInfo_v2(
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        numDependencies_out: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddKernelNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphKernelNodeGetParams(
        hNode: CUgraphNode,
        nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphKernelNodeSetParams(
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecKernelNodeSetParams(
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphExecUpdate(
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        hErrorNode_out: *mut CUgraphNode,
        updateResult_out: *mut CUgraphExecUpdateResult,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphGetEdges(
        hGraph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        numEdges: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphNodeGetDependencies(
        hNode: CUgraphNode,
        dependencies: *mut CUgraphNode,
        numDependencies: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphNodeGetDependentNodes(
        hNode: CUgraphNode,
        dependentNodes: *mut CUgraphNode,
        numDependentNodes: *mut usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphAddDependencies(
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphRemoveDependencies(
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        numDependencies: usize,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    #[newer]
    pub fn cuGraphAddNode(
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams,
    ) -> CUresult;
    #[page = "group__CUDA__GRAPH.html"]
    pub fn cuGraphInstantiate_v2(
        phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        phErrorNode: *mut CUgraphNode,
        logBuffer: *mut ::core::ffi::c_char,
        bufferSize: usize,
    ) -> CUresult;
    #[page = "group__CUDA__STREAM.html"]
    pub fn cuStreamUpdateCaptureDependencies(
        hStream: CUstream,
        dependencies: *mut CUgraphNode,
        numDependencies: usize,
        flags: ::core::ffi::c_uint,
    ) -> CUresult;
    #[page = "group__CUDA__DRIVER__ENTRY__POINT.html"]
    pub fn cuGetProcAddress(
        symbol: *const ::core::ffi::c_char,
        pfn: *mut *mut ::core::ffi::c_void,
        cudaVersion: ::core::ffi::c_int,
        flags: cuuint64_t,
    ) -> CUresult;
}
