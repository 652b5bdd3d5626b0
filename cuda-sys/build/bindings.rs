//! The text of bindings, split into files by kind of item.

use std::fs;
use std::path::Path;

/// The module that includes the parts.
const MODULE: &str = r#"include!("types.rs");
include!("constants.rs");
include!("layout.rs");
include!("functions.rs");
include!("header.rs");
pub(crate) mod names {
    pub use super::symbol::*;
    include!("names.rs");
}
"#;

/// The beginning of the file of functions; a closing brace ends the file.
pub(crate) const FUNCTIONS: &str = "driver_api! {\n";

/// The text of bindings, split by kind of item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bindings {
    /// Declarations of the functions.
    pub(crate) functions: String,
    /// Plain names that stand for suffixed ones: `cuMemAlloc` for `cuMemAlloc_v2`.
    pub(crate) names: String,
    /// Structs, unions, handles and enum newtypes.
    pub(crate) types: String,
    /// Enumerators and macro constants.
    pub(crate) constants: String,
    /// Compile-time assertions on size, alignment and offset.
    pub(crate) layout: String,
}

impl Bindings {
    /// Returns the file name and text of each part, and of the module that includes them. `header` is the
    /// `CUDA_VERSION` of the system's header and the names that it added, if one was read.
    pub(crate) fn files(&self, header: Option<(u32, &[String])>) -> [(&'static str, String); 7] {
        let header = match header {
            Some((version, adds)) => {
                format!("Some(crate::Header {{ version: {version}, adds: &{adds:#?} }})")
            }
            None => "None".to_owned(),
        };
        [
            ("mod.rs", MODULE.to_owned()),
            ("functions.rs", format!("{FUNCTIONS}{}}}\n", self.functions)),
            ("names.rs", self.names.clone()),
            ("types.rs", self.types.clone()),
            ("constants.rs", self.constants.clone()),
            ("layout.rs", self.layout.clone()),
            ("header.rs", format!("pub(crate) const HEADER: Option<crate::Header> = {header};\n")),
        ]
    }

    /// Writes the files to `directory`, and creates it.
    pub(crate) fn write(
        &self,
        directory: &Path,
        header: Option<(u32, &[String])>,
    ) -> Result<(), String> {
        fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        for (file, text) in self.files(header) {
            let file = directory.join(file);
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(())
    }
}

/// Splits formatted Rust text into its top-level items, each with its attributes.
///
/// prettyplease starts every item in the first column and ends a braced one with a `}` there, so
/// lines are enough to tell items apart.
pub(crate) fn items(text: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut item = String::new();
    for line in text.lines() {
        item.push_str(line);
        item.push('\n');
        let continues = line.starts_with(' ') || line.starts_with('#');
        let opens = line.ends_with(['{', '(', '[', '=', '<', ',']);
        if !continues && !opens {
            items.push(std::mem::take(&mut item));
        }
    }
    items
}

/// Returns the first line of an item that is not an attribute.
pub(crate) fn head(item: &str) -> &str {
    item.lines().find(|line| !line.trim_start().starts_with('#')).unwrap_or_default().trim_start()
}

/// Splits the body of an extern block into declarations, each with its attributes.
pub(crate) fn declarations(functions: &str) -> Vec<String> {
    functions.split_inclusive("-> CUresult;\n").map(str::to_owned).collect()
}

/// Returns the name of a declaration.
pub(crate) fn function_name(declaration: &str) -> Option<&str> {
    head(declaration).strip_prefix("pub fn ")?.split('(').next()
}
