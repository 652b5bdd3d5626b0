//! The bindgen call: turns `cuda.h` into Rust text.
//!
//! The build script calls it for the header that it found; `cargo xtask bindings` calls it for the newest
//! header, and the output is checked in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use bindgen::callbacks::{EnumVariantCustomBehavior, EnumVariantValue, ParseCallbacks};
use bindgen::{Builder, CodegenConfig, EnumVariation, Formatter, RustEdition, RustTarget};

use super::bindings::{Bindings, declarations, function_name, head, items};

/// The symbols of CUDA 11.8, one per line, which every supported driver has.
pub(crate) const FLOOR: &str = include_str!("floor_11_8.txt");

/// The reason why bindgen produced no bindings.
#[derive(Debug)]
pub(crate) enum Error {
    /// bindgen panicked, as it does when libclang cannot be loaded.
    Panic(String),
    /// The header was found, but bindgen failed on it.
    Header(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Panic(why) => {
                write!(f, "bindgen panicked, as it does if libclang cannot be loaded: {why}")
            }
            Error::Header(why) => write!(f, "bindgen failed on cuda.h: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Runs bindgen on the `cuda.h` in `include`. `package` is the directory of this crate, which contains
/// `wrapper.h` and the few standard headers that `cuda.h` includes. `kept` lists symbols to bind even if the
/// header no longer declares them to programs.
///
/// In a build script, bindgen reads the target from the environment.
pub(crate) fn generate(include: &Path, package: &Path, kept: &[&str]) -> Result<Bindings, Error> {
    let header = std::fs::read(include.join("cuda.h"))
        .map_err(|e| Error::Header(format!("{}: {e}", include.join("cuda.h").display())))?;
    // Comments may contain any bytes.
    let header = String::from_utf8_lossy(&header);

    let declared = run(base(include, package, &header).allowlist_file(".*[/\\\\]cuda\\.h"))?;
    let mut bindings = split(&declared);

    // The header's internal view still declares everything that the driver exports.
    let bound = function_names(&bindings.functions);
    let lost: Vec<&&str> = kept.iter().filter(|name| !bound.contains(**name)).collect();
    if !lost.is_empty() {
        let mut builder = base(include, package, &header)
            .clang_arg("-D__CUDA_API_VERSION_INTERNAL")
            .with_codegen_config(CodegenConfig::FUNCTIONS)
            .allowlist_recursively(false);
        for name in lost {
            builder = builder.allowlist_function(name);
        }
        bindings.functions.push_str(&split(&run(builder)?).functions);
    }

    let bound = function_names(&bindings.functions);
    let names = plain_names(&header, &bound);
    Ok(Bindings {
        functions: mark(&bindings.functions, &pages(&header)),
        names: names
            .iter()
            .map(|(plain, target)| format!("pub use super::symbol::{target} as {plain};\n"))
            .collect(),
        types: normalise(&bindings.types, &bindings.constants),
        constants: unsigned(&bindings.constants, &header),
        layout: bindings.layout,
    })
}

/// Makes the types the same for every target, and lists the values of each enum for its `Debug`.
///
/// An enum without negative enumerators is an `unsigned int`, except with Microsoft's compiler,
/// which makes every enum an `int`: four bytes, passed the same way. That compiler also spells two
/// fixed-width integers differently.
fn normalise(types: &str, constants: &str) -> String {
    let signed: BTreeSet<&str> = constants
        .split(';')
        .filter_map(|constant| constant.split_once(": ")?.1.split_once(" = "))
        .filter(|(_, value)| value.contains('-'))
        .map(|(ty, _)| ty)
        .collect();
    let mut values: BTreeMap<&str, String> = BTreeMap::new();
    for (name, rest) in constants.split(';').filter_map(|constant| constant.split_once(": ")) {
        let (name, ty) = (name.rsplit(' ').next(), rest.split(' ').next());
        let (Some(name), Some(ty)) = (name, ty) else { continue };
        values.entry(ty).or_default().push_str(&format!("    {name},\n"));
    }
    let mut text = String::new();
    for line in types.lines() {
        let newtype = line.strip_prefix("pub struct ").and_then(|rest| {
            let ty = rest.strip_suffix(");")?.split_once("(pub ::core::ffi::c_")?;
            Some((ty.0, if signed.contains(ty.0) { "int" } else { "uint" }))
        });
        match (newtype, line) {
            (Some((name, ty)), _) => {
                if let Some(derived) = text.rfind("Debug, ") {
                    text.replace_range(derived..derived + "Debug, ".len(), "");
                }
                text.push_str(&format!("pub struct {name}(pub ::core::ffi::c_{ty});\n"));
                let values = values.get(name).map_or("", String::as_str);
                text.push_str(&format!("by_name! {{ {name} {{\n{values}}}}}"));
            }
            (_, "pub type cuuint32_t = ::core::ffi::c_uint;") => {
                text.push_str("pub type cuuint32_t = u32;");
            }
            (_, "pub type cuuint64_t = ::core::ffi::c_ulonglong;") => {
                text.push_str("pub type cuuint64_t = u64;");
            }
            (_, line) => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Gives macros such as `(~0u)`, which bindgen reads as -1, their unsigned value.
fn unsigned(constants: &str, header: &str) -> String {
    let mut text = String::new();
    for line in constants.lines() {
        let negative = line
            .strip_prefix("pub const ")
            .and_then(|rest| rest.strip_suffix(';')?.split_once(": i32 = "))
            .and_then(|(name, value)| Some((name, value.parse::<i32>().ok()?)));
        match negative {
            Some((name, value)) if defined_unsigned(header, name) => {
                text.push_str(&format!("pub const {name}: u32 = {};", value as u32));
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// Whether the header defines `name` as a number with the suffix `u`.
fn defined_unsigned(header: &str, name: &str) -> bool {
    header
        .lines()
        .filter_map(|line| {
            line.trim_start().strip_prefix("#define ")?.trim_start().strip_prefix(name)
        })
        .any(|value| value.starts_with(' ') && value.trim_end_matches([' ', ')']).ends_with('u'))
}

fn base(include: &Path, package: &Path, header: &str) -> Builder {
    bindgen::builder()
        .header(package.join("wrapper.h").to_string_lossy())
        .clang_arg(format!("-I{}", package.join("build/include").display()))
        .clang_arg(format!("-I{}", include.display()))
        .parse_callbacks(Box::new(HideCounts::of(header)))
        // Helpers that the header undefines at its end.
        .blocklist_item("RESOURCE_ABI_.*")
        .formatter(Formatter::Prettyplease)
        .disable_header_comment()
        .generate_comments(false)
        .merge_extern_blocks(true)
        .use_core()
        .rust_edition(RustEdition::Edition2024)
        .rust_target(RustTarget::stable(85, 0).unwrap_or_default())
        .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: true })
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_debug(true)
        .layout_tests(true)
}

/// Hides enumerators that only count the others: their value changes with every release.
#[derive(Debug)]
struct HideCounts(BTreeSet<String>);

impl HideCounts {
    /// Finds the counts. The name of a count ends in `_MAX`, and it has no explicit value, or the greatest
    /// possible: `CU_LIMIT_MAX`, not `CU_CTX_LMEM_RESIZE_TO_MAX = 0x10`.
    fn of(header: &str) -> Self {
        let count = |line: &str| {
            let (name, rest) = line.trim().split_once("_MAX")?;
            let bare = rest.is_empty() || rest.starts_with([' ', ',', '/']);
            let value = rest.split_once('=').map(|(_, value)| value.trim());
            let counts = bare && value.is_none_or(|value| value.starts_with("0x7FFFFFFF"));
            (counts && name.starts_with("CU") && !name.contains(' ')).then(|| format!("{name}_MAX"))
        };
        Self(header.lines().filter_map(count).collect())
    }
}

impl ParseCallbacks for HideCounts {
    fn enum_variant_behavior(
        &self,
        _enum_name: Option<&str>,
        variant: &str,
        _value: EnumVariantValue,
    ) -> Option<EnumVariantCustomBehavior> {
        self.0.contains(variant).then_some(EnumVariantCustomBehavior::Hide)
    }
}

fn run(builder: Builder) -> Result<String, Error> {
    // bindgen panics if libclang cannot be loaded; that must neither end the build nor print a panic message. With
    // `-Cpanic=abort` in RUSTFLAGS it ends the build, and the message is all that says why.
    let hook = panic::take_hook();
    if cfg!(panic = "unwind") {
        panic::set_hook(Box::new(|_| {}));
    }
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| builder.generate()));
    panic::set_hook(hook);
    match outcome {
        Ok(Ok(bindings)) => Ok(bindings.to_string()),
        Ok(Err(error)) => Err(Error::Header(error.to_string())),
        Err(payload) => {
            let text = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("bindgen panicked");
            Err(Error::Panic(text.to_owned()))
        }
    }
}

/// Sorts the top-level items of formatted Rust text by kind.
fn split(text: &str) -> Bindings {
    let mut bindings = Bindings::default();
    for item in items(text) {
        let head = head(&item);
        if head.starts_with("unsafe extern") {
            for line in item.lines().filter(|line| line.starts_with(' ')) {
                bindings.functions.push_str(line);
                bindings.functions.push('\n');
            }
        } else if head.starts_with("const _:") {
            bindings.layout.push_str(&item);
        } else if head.starts_with("pub const") {
            bindings.constants.push_str(&item);
        } else {
            bindings.types.push_str(&item);
        }
    }
    bindings
}

/// Returns the names that the body of the extern block declares.
fn function_names(functions: &str) -> BTreeSet<String> {
    declarations(functions)
        .iter()
        .filter_map(|declaration| function_name(declaration))
        .map(str::to_owned)
        .collect()
}

/// Maps plain names to the symbols that the header's macros make of them: `#define cuMemAlloc cuMemAlloc_v2`,
/// or, for names with a per-thread form, `#define cuMemcpyHtoD __CUDA_API_PTDS(cuMemcpyHtoD_v2)`.
fn plain_names(header: &str, bound: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for line in header.lines() {
        let Some(rest) = line.trim_start().strip_prefix('#') else {
            continue;
        };
        let mut words = rest.split_whitespace();
        if words.next() != Some("define") {
            continue;
        }
        let (Some(plain), Some(target)) = (words.next(), words.next()) else {
            continue;
        };
        let target = target
            .strip_prefix("__CUDA_API_PTDS(")
            .or_else(|| target.strip_prefix("__CUDA_API_PTSZ("))
            .map_or(target, |inner| inner.trim_end_matches(')'));
        if plain.starts_with("cu") && plain != target && bound.contains(target) {
            names.insert(plain.to_owned(), target.to_owned());
        }
    }
    names
}

/// Maps each function to its group in NVIDIA's reference, by the header's own comments.
fn pages(header: &str) -> BTreeMap<&str, &str> {
    let mut pages = BTreeMap::new();
    let mut defined = "";
    let mut open = Vec::new();
    let mut declares = false;
    for line in header.lines() {
        if let Some((_, group)) = line.split_once("\\defgroup ") {
            defined = group.split_whitespace().next().unwrap_or_default();
        } else if line.contains("@{") {
            open.push(defined);
        } else if line.contains("@}") {
            open.pop();
        }
        // The name may be on the line after the type.
        let declaration = match line.split_once("CUresult CUDAAPI") {
            Some((_, rest)) => rest,
            None if declares => line,
            None => continue,
        };
        declares = declaration.is_empty();
        let name = declaration.trim_start().split('(').next().unwrap_or_default();
        if let (Some(group), false) = (open.last(), declares) {
            pages.entry(name).or_insert(*group);
        }
    }
    pages
}

/// Adds to each function the address of its documentation page, and the attribute `#[newer]` if drivers of
/// the floor lack it. A suffixed name has the page of the plain name.
fn mark(functions: &str, pages: &BTreeMap<&str, &str>) -> String {
    let floor: BTreeSet<&str> = FLOOR.lines().collect();
    let mut text = String::new();
    for declaration in declarations(functions) {
        let name = function_name(&declaration).unwrap_or_default();
        let plain = name.rsplit_once("_v").map_or(name, |(plain, _)| plain);
        let page = match pages.get(name).or_else(|| pages.get(plain)) {
            Some(group) => format!("group__{}.html", group.replace('_', "__")),
            None => "index.html".to_owned(),
        };
        text.push_str(&format!("    #[page = \"{page}\"]\n"));
        if !floor.contains(name) {
            text.push_str("    #[newer]\n");
        }
        text.push_str(&declaration);
    }
    text
}
