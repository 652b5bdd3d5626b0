//! What a header adds to the bundled bindings; see `build/complete.rs`.

use std::path::Path;

use bindings::Bindings;
use complete::{Completed, complete};

#[path = "../build/bindings.rs"]
#[expect(dead_code, reason = "the build script writes files, too")]
mod bindings;
#[path = "../build/complete.rs"]
mod complete;

fn bundled() -> Bindings {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings");
    Bindings::read(&directory).expect("the checked-in bindings")
}

/// Returns a header with a function, a struct that it takes, a constant and a plain name, each as bindgen
/// formats it.
fn future() -> Bindings {
    Bindings {
        functions: "    #[page = \"index.html\"]\n    #[newer]\n    pub fn cuFuture_v2(\n        \
                    thing: *mut CUfuture,\n        stream: CUstream,\n    ) -> CUresult;\n"
            .to_owned(),
        names: "pub use super::symbol::cuFuture_v2 as cuFuture;\n".to_owned(),
        types: "#[repr(C)]\n#[derive(Debug, Copy, Clone)]\npub struct CUfuture_st {\n    \
                pub size: usize,\n}\nimpl Default for CUfuture_st {\n    fn default() -> Self {\n        \
                todo()\n    }\n}\npub type CUfuture = CUfuture_st;\n"
            .to_owned(),
        constants: "pub const CU_FUTURE: u32 = 1;\n".to_owned(),
        layout: layout("CUfuture_st", 8),
    }
}

fn layout(name: &str, size: usize) -> String {
    format!(
        "const _: () = {{\n    [\"Size of {name}\"][::core::mem::size_of::<{name}>() - {size}usize];\n    \
         [\"Alignment of {name}\"][::core::mem::align_of::<{name}>() - 8usize];\n}};\n"
    )
}

/// Returns the names that `header` adds to the bundled bindings.
fn added(header: &Bindings) -> Vec<String> {
    complete(&bundled(), header).added
}

#[test]
fn the_bundled_bindings_add_nothing_to_themselves() {
    let bundled = bundled();
    assert_eq!(
        complete(&bundled, &bundled),
        Completed { bindings: bundled.clone(), ..Completed::default() }
    );
}

#[test]
fn what_a_header_alone_declares_is_added() {
    let (bundled, header) = (bundled(), future());
    let completed = complete(&bundled, &header);
    assert_eq!(
        completed.added,
        ["CU_FUTURE", "CUfuture", "CUfuture_st", "cuFuture", "cuFuture_v2"]
    );
    assert_eq!(completed.unfit, [""; 0]);
    let Bindings { functions, names, constants, layout, .. } = &completed.bindings;
    assert_eq!(*functions, bundled.functions + &header.functions);
    assert_eq!(*names, bundled.names + &header.names);
    assert_eq!(*constants, bundled.constants + &header.constants);
    assert_eq!(*layout, bundled.layout + &header.layout);
    // Without `Debug`, which a bundled union in the type would not implement.
    let types = header.types.replace("Debug, ", "");
    assert_eq!(completed.bindings.types, bundled.types + &types);
}

#[test]
fn what_both_declare_is_the_bundled_bindings() {
    let older = Bindings {
        functions: "    pub fn cuInit() -> CUresult;\n".to_owned(),
        // In the bundled header, `cuMemAlloc` stands for another symbol, and `cuInit` is not a plain name at
        // all.
        names: "pub use super::symbol::cuMemAlloc_v3 as cuMemAlloc;\n\
                pub use super::symbol::cuInit_v2 as cuInit;\n"
            .to_owned(),
        types: "pub struct CUmemLocation_st {\n    pub id: i32,\n}\n\
                pub struct CUmemLocation_st__bindgen_ty_9 {\n    pub id: i32,\n}\n"
            .to_owned(),
        constants: "pub const CUDA_VERSION: u32 = 11080;\n".to_owned(),
        layout: layout("CUmemLocation_st__bindgen_ty_9", 4),
    };
    assert_eq!(added(&older), [""; 0]);
}

#[test]
fn a_plain_name_of_a_type_means_what_it_meant_to_the_header() {
    // In 11.8 this name meant the first version of the parameters; today it means the second one.
    let mut header = future();
    header.functions = header.functions.replace("CUfuture", "CUDA_KERNEL_NODE_PARAMS");
    header.types.push_str("pub type CUDA_KERNEL_NODE_PARAMS = CUDA_KERNEL_NODE_PARAMS_v1;\n");
    let completed = complete(&bundled(), &header);
    assert!(completed.bindings.functions.contains("thing: *mut CUDA_KERNEL_NODE_PARAMS_v1,"));
}

#[test]
fn what_builds_on_a_type_that_grew_is_left_out() {
    // The function takes the type by its plain name; the new struct contains the type; a plain name leads to
    // both.
    let mut header = future();
    header.types =
        header.types.replace("size: usize", "uuid: CUuuid").replace("todo", "CUuuid::todo");
    header.types.push_str("pub type CUuuid = CUuuid_st;\n");
    header.layout += &layout("CUuuid_st", 24);
    let completed = complete(&bundled(), &header);
    assert_eq!(completed.added, ["CU_FUTURE"]);
    assert_eq!(completed.unfit, ["CUfuture", "CUfuture_st", "cuFuture", "cuFuture_v2"]);
}
