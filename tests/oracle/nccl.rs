//! The types, constants and functions of NCCL in `cuda-core`, as a C program of static assertions over
//! `nccl.h`.

/// What is included instead of the runtime's headers, of which `nccl.h` needs a name each.
pub(crate) const STUBS: [(&str, &str); 3] = [
    (
        "cuda_runtime.h",
        "#pragma once\n#define CUDART_VERSION 12000\n\
         typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n",
    ),
    ("cuda_fp16.h", ""),
    // As the toolkit's does: NCCL 2.18 has the type if it is defined.
    ("cuda_bf16.h", "#define __CUDA_BF16_TYPES_EXIST__\n"),
];

/// Constants of `raw.rs`, and what `nccl.h` calls them.
const NAMES: [(&str, &str); 26] = [
    ("UNIQUE_ID_BYTES", "NCCL_UNIQUE_ID_BYTES"),
    ("SUCCESS", "ncclSuccess"),
    ("IN_PROGRESS", "ncclInProgress"),
    ("SUM", "ncclSum"),
    ("PROD", "ncclProd"),
    ("MAX", "ncclMax"),
    ("MIN", "ncclMin"),
    ("AVG", "ncclAvg"),
    ("INT8", "ncclInt8"),
    ("UINT8", "ncclUint8"),
    ("INT32", "ncclInt32"),
    ("UINT32", "ncclUint32"),
    ("INT64", "ncclInt64"),
    ("UINT64", "ncclUint64"),
    ("FLOAT16", "ncclFloat16"),
    ("FLOAT32", "ncclFloat32"),
    ("FLOAT64", "ncclFloat64"),
    ("BFLOAT16", "ncclBfloat16"),
    ("SCALAR_HOST_IMMEDIATE", "ncclScalarHostImmediate"),
    ("SPLIT_NOCOLOR", "NCCL_SPLIT_NOCOLOR"),
    ("SHRINK_DEFAULT", "NCCL_SHRINK_DEFAULT"),
    ("SHRINK_ABORT", "NCCL_SHRINK_ABORT"),
    ("UNDEF_INT", "NCCL_CONFIG_UNDEF_INT"),
    ("API_MAGIC", "NCCL_API_MAGIC"),
    ("VERSION_CODE", "NCCL_VERSION(2, 18, 1)"),
    ("CONFIG_BYTES", "offsetof(ncclConfig_t, splitShare) + 2 * sizeof(int)"),
];

/// NCCL 2.18 has this number without a name.
const MAGIC: &str = "#ifndef NCCL_API_MAGIC\n#define NCCL_API_MAGIC 0xcafebeef\n#endif\n";

/// The members of `RawConfig` in their order, as `nccl.h` calls them; from 2.25 on all of them exist.
const MEMBERS: [&str; 9] = [
    "size",
    "magic",
    "version",
    "blocking",
    "cgaClusterSize",
    "minCTAs",
    "maxCTAs",
    "netName",
    "splitShare",
];

/// Functions of `library.rs`, with their arguments in `nccl.h`.
const FUNCTIONS: [(&str, &str); 29] = [
    ("ncclGetVersion", "int *"),
    ("ncclGetErrorString", "ncclResult_t"),
    ("ncclGetLastError", "ncclComm_t"),
    ("ncclGetUniqueId", "ncclUniqueId *"),
    ("ncclCommInitRankConfig", "ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *"),
    ("ncclCommSplit", "ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *"),
    ("ncclCommCount", "ncclComm_t, int *"),
    ("ncclCommUserRank", "ncclComm_t, int *"),
    ("ncclCommGetAsyncError", "ncclComm_t, ncclResult_t *"),
    ("ncclCommFinalize", "ncclComm_t"),
    ("ncclCommDestroy", "ncclComm_t"),
    ("ncclCommAbort", "ncclComm_t"),
    ("ncclGroupStart", "void"),
    ("ncclGroupEnd", "void"),
    (
        "ncclRedOpCreatePreMulSum",
        "ncclRedOp_t *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t",
    ),
    ("ncclRedOpDestroy", "ncclRedOp_t, ncclComm_t"),
    (
        "ncclAllReduce",
        "const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t",
    ),
    (
        "ncclReduceScatter",
        "const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t",
    ),
    (
        "ncclReduce",
        "const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t, cudaStream_t",
    ),
    (
        "ncclBroadcast",
        "const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t",
    ),
    ("ncclAllGather", "const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t"),
    ("ncclSend", "const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t"),
    ("ncclRecv", "void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t"),
    // Of 2.19.
    ("ncclCommRegister", "ncclComm_t, void *, size_t, void **"),
    ("ncclCommDeregister", "ncclComm_t, void *"),
    // Of 2.23.
    ("ncclCommInitRankScalable", "ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *"),
    // Of 2.27.
    ("ncclCommShrink", "ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int"),
    // Of 2.29.
    ("ncclCommGetUniqueId", "ncclComm_t, ncclUniqueId *"),
    ("ncclCommGrow", "ncclComm_t, int, const ncclUniqueId *, int, ncclComm_t *, ncclConfig_t *"),
];

/// Types of `nccl.h`, in Rust. Its enumerations are as large as an `int`, which is asserted.
const TYPES: [(&str, &str); 21] = [
    ("void", ""),
    ("int", "c_int"),
    ("int *", "*mut c_int"),
    ("size_t", "usize"),
    ("void *", "*mut c_void"),
    ("void **", "*mut *mut c_void"),
    ("const void *", "*const c_void"),
    ("const char *", "*const c_char"),
    ("ncclResult_t", "c_int"),
    ("ncclResult_t *", "*mut c_int"),
    ("ncclDataType_t", "c_int"),
    ("ncclRedOp_t", "c_int"),
    ("ncclRedOp_t *", "*mut c_int"),
    ("ncclScalarResidence_t", "c_int"),
    ("ncclComm_t", "RawCommunicator"),
    ("ncclComm_t *", "*mut RawCommunicator"),
    ("ncclUniqueId", "RawUniqueId"),
    ("ncclUniqueId *", "*mut RawUniqueId"),
    ("const ncclUniqueId *", "*const RawUniqueId"),
    ("ncclConfig_t *", "*mut RawConfig"),
    ("cudaStream_t", "CUstream"),
];

/// The type of a function of `nccl.h`; or how `library.rs` differs from the table above.
fn function(name: &str, declared: &str) -> Result<String, String> {
    let known = FUNCTIONS.iter().find(|(known, _)| *known == name);
    let (_, arguments) = known.ok_or_else(|| format!("{name} of library.rs is in no table"))?;
    let result = match name {
        "ncclGetErrorString" | "ncclGetLastError" => "const char *",
        _ => "ncclResult_t",
    };
    let rust = |c: &str| TYPES.iter().find(|(known, _)| *known == c).map_or("?", |(_, rust)| rust);
    let own: Vec<&str> = arguments.split(", ").map(rust).collect();
    let own = format!("({})", own.join(", "));
    let own = if result == "ncclResult_t" { own } else { format!("{own} -> {}", rust(result)) };
    match own == declared {
        true => Ok(format!("{result} (*)({arguments})")),
        false => Err(format!("{name} of library.rs is {declared}, and {own} in nccl.h")),
    }
}

/// The functions that `library.rs` declares, and their arguments, in one line.
fn declared(library: &str) -> Vec<(String, String)> {
    let words: Vec<&str> = library.split_whitespace().collect();
    let text = words.join(" ").replace("( ", "(");
    let entries = text.split(" = c\"").skip(1);
    let entries = entries.filter_map(|entry| entry.split_once(';')?.0.split_once('"'));
    entries.map(|(name, ty)| (name.to_owned(), ty.to_owned())).collect()
}

/// The minor version of NCCL 2 that a name came with, if that is later than 2.18.
fn since(name: &str) -> Option<u32> {
    match name {
        "ncclCommRegister" | "ncclCommDeregister" => Some(19),
        "ncclCommInitRankScalable" => Some(23),
        "ncclCommShrink" | "NCCL_SHRINK_DEFAULT" | "NCCL_SHRINK_ABORT" => Some(27),
        "ncclCommGetUniqueId" | "ncclCommGrow" => Some(29),
        _ => None,
    }
}

/// The program, and how many assertions it has; or what in `raw.rs` or `library.rs` is not as here.
pub(crate) fn program(raw: &str, library: &str) -> Result<(String, usize), String> {
    let mut text = format!("#include <stddef.h>\n#include <nccl.h>\n{MAGIC}");
    let mut count = 0;
    let mut claim = |name: &str, claim: String| {
        let claim = format!("_Static_assert({claim}, \"{name}\");\n");
        text.push_str(&match since(name) {
            Some(minor) => {
                format!("#if NCCL_VERSION_CODE >= NCCL_VERSION(2, {minor}, 0)\n{claim}#endif\n")
            }
            None => claim,
        });
        count += 1;
    };
    for line in raw.lines() {
        let line = line.trim_start_matches("pub(super) ");
        let constant = line.strip_prefix("const ").and_then(|it| it.split_once(':'));
        let Some((name, rest)) = constant.filter(|(name, _)| *name != "_") else {
            continue;
        };
        let value = rest.split_once('=').map_or("", |(_, value)| value.trim());
        let value =
            value.trim_end_matches(';').replace('_', "").replace("cint::MIN", "(-2147483647 - 1)");
        let known = NAMES.iter().find(|(known, _)| *known == name);
        let (_, theirs) = known.ok_or_else(|| format!("{name} of raw.rs has no name in nccl.h"))?;
        claim(theirs, format!("({theirs}) == ({value})"));
    }
    let mut offset = 0;
    for member in MEMBERS {
        let size = if matches!(member, "size" | "netName") { 8 } else { 4 };
        claim(member, format!("offsetof(ncclConfig_t, {member}) == {offset}"));
        offset += size;
    }
    let enums = ["ncclResult_t", "ncclRedOp_t", "ncclDataType_t", "ncclScalarResidence_t"];
    claim("ncclUniqueId", "sizeof(ncclUniqueId) == 128".to_owned());
    enums.into_iter().for_each(|ty| claim(ty, format!("sizeof({ty}) == sizeof(int)")));
    let functions = declared(library);
    if functions.len() != FUNCTIONS.len() {
        return Err(format!("{} functions, and not {}", functions.len(), FUNCTIONS.len()));
    }
    for (name, declared) in functions {
        let ty = function(&name, &declared)?;
        claim(&name, format!("__builtin_types_compatible_p(__typeof__(&{name}), {ty})"));
    }
    Ok((text, count))
}
