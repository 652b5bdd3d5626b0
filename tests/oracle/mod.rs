//! Turns the text of the bindings into C programs of static assertions.
//!
//! prettyplease formats the bindings regularly, so lines and a few fixed phrases suffice as a
//! grammar. What cannot be expressed in C is listed as an exception, never dropped silently.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ctype::Types;

mod ctype;
pub(crate) mod nccl;

/// The bindings of one header, as text.
pub(crate) struct Bindings {
    functions: Vec<Function>,
    names: BTreeMap<String, String>,
    constants: Vec<(String, String)>,
    layout: Vec<Layout>,
    types: Types,
}

struct Function {
    name: String,
    arguments: Vec<String>,
}

/// One line of bindgen's layout assertions.
enum Layout {
    Size(String, String),
    Alignment(String, String),
    Offset(String, String, String),
}

/// A C program of assertions, and how many there are of each kind.
pub(crate) struct Program {
    prologue: &'static str,
    body: String,
    counts: BTreeMap<&'static str, usize>,
}

impl Program {
    fn new(prologue: &'static str) -> Self {
        Self { prologue, body: String::new(), counts: BTreeMap::new() }
    }

    fn assert(&mut self, kind: &'static str, claim: &str) {
        let quoted = claim.replace('\\', "\\\\").replace('"', "\\\"");
        self.body.push_str(&format!("_Static_assert({claim}, \"{quoted}\");\n"));
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Makes `name` mean the symbol, even if the header defines a macro of that name.
    fn undefine(&mut self, name: &str) {
        self.body.push_str(&format!("#undef {name}\n"));
    }

    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.prologue, self.body)
    }

    /// A program over the same header with one claim, which is false.
    pub(crate) fn spoiled(&self) -> Self {
        let mut spoiled = Self::new(self.prologue);
        spoiled.assert("false", "sizeof(CUuuid) == 17");
        spoiled
    }

    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, usize> {
        &self.counts
    }
}

/// Names of the functions that the preprocessed header declares.
pub(crate) fn declared(preprocessed: &str) -> BTreeSet<String> {
    preprocessed
        .split("CUresult")
        .filter_map(|text| text.trim_start().split_once('('))
        .map(|(name, _)| name.trim())
        .filter(|name| name.starts_with("cu") && name.chars().all(is_identifier))
        .map(str::to_owned)
        .collect()
}

/// The enumerators of the preprocessed header, with the values that it gives them.
fn enumerators(preprocessed: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    preprocessed
        .split("enum")
        .filter_map(|text| text.split_once('{'))
        .filter(|(tag, _)| tag.trim().chars().all(is_identifier))
        .filter_map(|(_, text)| text.split_once('}'))
        .flat_map(|(body, _)| body.split(','))
        .map(|enumerator| match enumerator.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (enumerator.trim(), None),
        })
        .filter(|(name, _)| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn is_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl Bindings {
    /// Reads the bindings in `directory`. `header` decides which C types are known by a tag only.
    pub(crate) fn read(directory: &Path, header: &str) -> Result<Self, String> {
        let read = |file: &str| {
            let file = directory.join(file);
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            Ok::<_, String>(flatten(&text))
        };
        Ok(Self {
            functions: functions(&read("functions.rs")?),
            names: names(&read("names.rs")?),
            constants: constants(&read("constants.rs")?),
            layout: layout(&read("layout.rs")?),
            types: Types::read(&read("types.rs")?, header),
        })
    }

    /// How many functions are bound.
    pub(crate) fn symbols(&self) -> usize {
        self.functions.len()
    }

    /// The differences that a program would meet with the header's own bindings, one line each:
    /// sizes, alignments and values, the targets of plain names, and the parameters of functions.
    /// Names that these bindings lack count as differences, too.
    pub(crate) fn differences(&self, own: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        let (mine, theirs) = (self.facts(), own.facts());
        for (fact, value) in theirs {
            match mine.get(&fact) {
                Some(same) if *same == value => {}
                Some(other) => differences.push(format!("{fact}: {value}, bundled: {other}")),
                None => differences.push(format!("{fact}: lost")),
            }
        }
        differences
    }

    /// Every name, and what it means down to types without aliases.
    fn facts(&self) -> BTreeMap<String, String> {
        // 12.x appended the version to the names of some structs.
        let renamed = |name: &str| name.replace("_v1_st", "_st");
        let mut facts = BTreeMap::new();
        for Function { name, arguments } in &self.functions {
            let arguments = arguments.iter().map(|ty| self.types.spelled_out(ty));
            let arguments: Vec<_> = arguments.collect();
            facts.insert(format!("function {name}"), renamed(&arguments.join(", ")));
        }
        for (plain, target) in &self.names {
            facts.insert(format!("name {plain}"), target.clone());
        }
        for (name, value) in &self.constants {
            facts.insert(format!("value {name}"), value.clone());
        }
        for claim in &self.layout {
            let (fact, name, value) = match claim {
                Layout::Size(name, size) => ("size", name, size),
                Layout::Alignment(name, alignment) => ("alignment", name, alignment),
                Layout::Offset(..) => continue,
            };
            // A type without a name is a part of another, which has the size that matters.
            if !name.contains("__bindgen_ty_") {
                facts.insert(format!("{fact} {}", renamed(name)), value.clone());
            }
        }
        facts
    }

    /// Names that the header declares and the bindings lack: first those that they should have,
    /// then those that they leave out on purpose, with the reason.
    pub(crate) fn lacking(&self, preprocessed: &str) -> (Vec<String>, Vec<String>) {
        let functions: BTreeSet<&str> = self.functions.iter().map(|f| f.name.as_str()).collect();
        let constants: BTreeSet<&str> = self.constants.iter().map(|(name, _)| &**name).collect();
        let mut lost: Vec<String> = declared(preprocessed)
            .into_iter()
            .filter(|name| !functions.contains(name.as_str()))
            .collect();
        let mut exceptions: Vec<String> = self
            .types
            .unnamed()
            .map(|name| format!("{name}: unnamed in C, checked member by member"))
            .collect();
        for (name, value) in enumerators(preprocessed) {
            if constants.contains(name) {
                continue;
            }
            let counts = value.is_none_or(|value| value == "0x7FFFFFFF");
            if name.ends_with("_MAX") && counts {
                exceptions.push(format!("{name}: a count, left out"));
            } else {
                lost.push(name.to_owned());
            }
        }
        (lost, exceptions)
    }

    /// One program over the header as it is, and one over its internal view, for the functions
    /// that only that view still declares.
    pub(crate) fn programs(&self, declared: &BTreeSet<String>) -> [Program; 2] {
        let mut plain = Program::new(
            "#include \"wrapper.h\"\n#include <stddef.h>\n#include <stdint.h>\n\
             #define TEXT_(x) #x\n#define TEXT(x) TEXT_(x)\n",
        );
        let mut internal =
            Program::new("#define __CUDA_API_VERSION_INTERNAL\n#include \"wrapper.h\"\n");
        self.assert_names(&mut plain);
        self.assert_layout(&mut plain);
        self.types.assert(&mut plain);
        for (name, value) in &self.constants {
            plain.assert("values", &format!("(long long)({name}) == {value}ll"));
        }
        for function in &self.functions {
            let program =
                if declared.contains(&function.name) { &mut plain } else { &mut internal };
            let name = &function.name;
            program.undefine(name);
            let arguments: Vec<_> =
                function.arguments.iter().map(|ty| self.types.declare(ty, "")).collect();
            let arguments =
                if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
            program.assert(
                "functions",
                &format!(
                    "__builtin_types_compatible_p(__typeof__(&{name}), CUresult (*)({arguments}))"
                ),
            );
        }
        [plain, internal]
    }

    /// Asserts what the preprocessor makes of every name, whether it is one of the header's macros
    /// or not.
    fn assert_names(&self, program: &mut Program) {
        let mut meant: BTreeMap<&str, &str> =
            self.functions.iter().map(|f| (f.name.as_str(), f.name.as_str())).collect();
        for function in &self.functions {
            if let Some((plain, _)) = function.name.rsplit_once("_v") {
                meant.entry(plain).or_insert(plain);
            }
        }
        meant.extend(self.names.iter().map(|(plain, target)| (plain.as_str(), target.as_str())));
        for (name, target) in meant {
            program.assert("names", &format!("__builtin_strcmp(TEXT({name}), \"{target}\") == 0"));
        }
    }

    fn assert_layout(&self, program: &mut Program) {
        let alignments = self
            .layout
            .iter()
            .filter_map(|claim| match claim {
                Layout::Alignment(name, alignment) => Some((name.as_str(), alignment.as_str())),
                _ => None,
            })
            .collect();
        for claim in &self.layout {
            match claim {
                Layout::Size(name, size) => {
                    if let Some(ty) = self.types.name(name) {
                        program.assert("sizes", &format!("sizeof({ty}) == {size}"));
                    }
                }
                Layout::Alignment(name, alignment) => {
                    if let Some(ty) = self.types.name(name) {
                        program.assert("alignments", &format!("_Alignof({ty}) == {alignment}"));
                    }
                }
                Layout::Offset(name, field, offset) => {
                    let place = self.types.place(name, &alignments);
                    if let (Some((ty, base)), Some(field)) = (place, ctype::field(field)) {
                        let claim = format!("offsetof({ty}, {field}) == {base} + {offset}");
                        program.assert("offsets", &claim);
                    }
                }
            }
        }
    }
}

/// Removes line breaks and indentation, and the commas that come only with them.
fn flatten(text: &str) -> String {
    let mut flat = String::new();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with([')', ']', '>']) {
            flat.truncate(flat.trim_end_matches([',', ' ']).len());
        }
        flat.push_str(line);
        // A break stands for a space only where prettyplease broke between words.
        if line.ends_with([';', '{', '}']) || line.starts_with('#') {
            flat.push('\n');
        } else if line.ends_with([',', '=']) {
            flat.push(' ');
        }
    }
    flat.replace(", )", ")").replace(", ]", "]")
}

fn functions(text: &str) -> Vec<Function> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("pub fn ")?.split_once('(')?;
            let arguments = rest.rsplit_once(") -> CUresult;")?.0;
            Some(Function { name: name.to_owned(), arguments: ctype::arguments(arguments) })
        })
        .collect()
}

fn names(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| {
            let (target, plain) = line
                .strip_prefix("pub use super::symbol::")?
                .strip_suffix(';')?
                .split_once(" as ")?;
            Some((plain.to_owned(), target.to_owned()))
        })
        .collect()
}

fn constants(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
            let (ty, value) = rest.strip_suffix(';')?.split_once(" = ")?;
            let value = value.strip_prefix(ty).unwrap_or(value).trim_matches(['(', ')']);
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

fn layout(text: &str) -> Vec<Layout> {
    text.lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once("[\"")?;
            let (subject, rest) = rest.split_once("\"]")?;
            let value = rest.rsplit_once(" - ")?.1.split_once("usize")?.0.to_owned();
            if let Some(name) = subject.strip_prefix("Size of ") {
                return Some(Layout::Size(name.to_owned(), value));
            }
            if let Some(name) = subject.strip_prefix("Alignment of ") {
                return Some(Layout::Alignment(name.to_owned(), value));
            }
            let (name, field) = subject.strip_prefix("Offset of field: ")?.split_once("::")?;
            Some(Layout::Offset(name.to_owned(), field.to_owned(), value))
        })
        .collect()
}
