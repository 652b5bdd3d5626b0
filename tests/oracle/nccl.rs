//! The types and constants of NCCL in `cuda-core`, as a C program of static assertions over `nccl.h`.

/// What is included instead of the runtime's headers, of which `nccl.h` needs a name each.
pub(crate) const STUBS: [(&str, &str); 3] = [
    (
        "cuda_runtime.h",
        "#pragma once\n#define CUDART_VERSION 12000\n\
         typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n",
    ),
    ("cuda_fp16.h", ""),
    ("cuda_bf16.h", ""),
];

/// Constants of `raw.rs`, and what `nccl.h` calls them.
const NAMES: [(&str, &str); 24] = [
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
    ("UNDEF_INT", "NCCL_CONFIG_UNDEF_INT"),
    ("API_MAGIC", "NCCL_API_MAGIC"),
    ("VERSION_CODE", "NCCL_VERSION(2, 18, 1)"),
    ("CONFIG_BYTES", "offsetof(ncclConfig_t, splitShare) + 2 * sizeof(int)"),
];

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

/// Functions of NCCL 2.19, and their arguments in `library.rs`.
const NEWER: [(&str, &str); 2] = [
    ("ncclCommRegister", "ncclComm_t, void *, size_t, void **"),
    ("ncclCommDeregister", "ncclComm_t, void *"),
];

/// The program, and how many assertions it has; or what in `raw.rs` has no name here.
pub(crate) fn program(raw: &str) -> Result<(String, usize), String> {
    let mut text = "#include <stddef.h>\n#include <nccl.h>\n".to_owned();
    let mut count = 0;
    let mut claim = |claim: String| {
        text.push_str(&format!("_Static_assert({claim}, \"{claim}\");\n"));
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
        claim(format!("({theirs}) == ({value})"));
    }
    let mut offset = 0;
    for member in MEMBERS {
        let size = if matches!(member, "size" | "netName") { 8 } else { 4 };
        claim(format!("offsetof(ncclConfig_t, {member}) == {offset}"));
        offset += size;
    }
    for (ty, size) in
        [("ncclUniqueId", 128), ("ncclResult_t", 4), ("ncclRedOp_t", 4), ("ncclDataType_t", 4)]
    {
        claim(format!("sizeof({ty}) == {size}"));
    }
    // What is newer than NCCL 2.18.
    text.push_str("#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)\n");
    for (name, arguments) in NEWER {
        let ty = format!("ncclResult_t (*)({arguments})");
        let claim = format!("__builtin_types_compatible_p(__typeof__(&{name}), {ty})");
        text.push_str(&format!("_Static_assert({claim}, \"{name}\");\n"));
    }
    text.push_str("#endif\n");
    Ok((text, count + NEWER.len()))
}
