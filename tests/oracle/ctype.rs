//! The C side of the bindings' types.

use std::collections::{BTreeMap, BTreeSet};

use super::Program;

/// The types of the bindings, and their C names.
pub(crate) struct Types {
    /// Structs and unions, with fields and their Rust types.
    aggregates: BTreeMap<String, Vec<(String, String)>>,
    unions: BTreeSet<String>,
    enums: Vec<(String, &'static str)>,
    aliases: Vec<(String, String)>,
    /// Types that C knows by their tags only: `struct CUctx_st`.
    tags: BTreeMap<String, String>,
    /// The expression by which C reaches a type without a name: as a field of another type.
    fields: BTreeMap<String, (String, String)>,
}

impl Types {
    /// Reads the flattened text of `types.rs`.
    pub(crate) fn read(text: &str, header: &str) -> Self {
        let tagged = tagged(header);
        let mut types = Self {
            aggregates: BTreeMap::new(),
            unions: BTreeSet::new(),
            enums: Vec::new(),
            aliases: Vec::new(),
            tags: BTreeMap::new(),
            fields: BTreeMap::new(),
        };
        let mut open: Option<String> = None;
        for line in text.lines() {
            let words = line.strip_prefix("pub ").unwrap_or(line);
            let aggregate = words.strip_prefix("struct ").or_else(|| words.strip_prefix("union "));
            if let (Some(name), Some(rest)) = (&open, line.strip_prefix("pub ")) {
                types.read_fields(name, rest);
            }
            if let Some((name, _)) = aggregate.and_then(|rest| rest.split_once(" {")) {
                types.aggregates.insert(name.to_owned(), Vec::new());
                if words.starts_with("union ") {
                    types.unions.insert(name.to_owned());
                }
                open = Some(name.to_owned());
            } else if let Some((name, integer)) =
                aggregate.and_then(|rest| rest.split_once("(pub "))
            {
                let integer = if integer.contains("c_uint") { "unsigned int" } else { "int" };
                types.enums.push((name.to_owned(), integer));
            } else if let Some((name, ty)) = words
                .strip_prefix("type ")
                .and_then(|rest| rest.strip_suffix(';')?.split_once(" = "))
            {
                types.aliases.push((name.to_owned(), ty.to_owned()));
            }
            if line.ends_with('}') {
                open = None;
            }
        }
        let names = types.aggregates.keys().chain(types.enums.iter().map(|(name, _)| name));
        types.tags = names
            .filter_map(|name| {
                // bindgen puts the name of the type around it before that of an inner type, which
                // to C is one like any other.
                let inner = name.match_indices('_').map(|(at, _)| &name[at + 1..]);
                let tag =
                    [name.as_str()].into_iter().chain(inner).find(|t| tagged.contains_key(t))?;
                Some((name.clone(), format!("{} {tag}", tagged[tag])))
            })
            .collect();
        types
    }

    /// Reads the fields of `owner`, which flattening has put on one line.
    fn read_fields(&mut self, owner: &str, line: &str) {
        let line = line.trim_end_matches(['}', ' ']);
        for field in line.split("pub ") {
            let Some((name, ty)) = field.trim_end_matches([',', ' ']).split_once(": ") else {
                continue;
            };
            let element = ty.trim_start_matches('[').split(';').next().unwrap_or(ty);
            if element.contains("__bindgen_ty_") {
                let place = (owner.to_owned(), name.to_owned());
                self.fields.insert(element.to_owned(), place);
            }
            let fields = self.aggregates.entry(owner.to_owned()).or_default();
            fields.push((name.to_owned(), ty.to_owned()));
        }
    }

    /// `ty` with each alias in it replaced by its target.
    pub(crate) fn spelled_out(&self, ty: &str) -> String {
        let mut text = String::new();
        for word in ty.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            match self.aliases.iter().find(|(name, _)| name == end) {
                Some((_, target)) => text.push_str(&self.spelled_out(target)),
                None => text.push_str(end),
            }
            text.push_str(&word[end.len()..]);
        }
        text
    }

    /// Types that C cannot name in any way: unnamed members of a struct or union.
    pub(crate) fn unnamed(&self) -> impl Iterator<Item = &str> {
        self.aggregates.keys().map(String::as_str).filter(|name| self.name(name).is_none())
    }

    /// How C names a struct, union or enum.
    pub(crate) fn name(&self, name: &str) -> Option<String> {
        if let Some((owner, member)) = self.fields.get(name) {
            let owner = self.reachable(owner)?;
            let member = field(member)?;
            let ty = &self.aggregates[&self.fields[name].0];
            let array = ty.iter().any(|(f, ty)| f == &member && ty.starts_with('['));
            let index = if array { "[0]" } else { "" };
            return Some(format!("__typeof__((({owner} *)0)->{member}{index})"));
        }
        Some(self.tags.get(name).map_or(name, String::as_str).to_owned())
    }

    /// The type through which C reaches the fields of `name`: those of an unnamed member belong to
    /// the type around it.
    fn reachable(&self, name: &str) -> Option<String> {
        self.name(name).or_else(|| self.reachable(&self.fields.get(name)?.0))
    }

    /// The same, with the C expression of the offset at which those fields begin.
    pub(crate) fn place(
        &self,
        name: &str,
        alignments: &BTreeMap<&str, &str>,
    ) -> Option<(String, String)> {
        if let Some(ty) = self.name(name) {
            return Some((ty, "0".to_owned()));
        }
        let (owner, member) = self.fields.get(name)?;
        let (ty, base) = self.place(owner, alignments)?;
        let fields = self.aggregates.get(owner)?;
        let before = fields.iter().take_while(|(field, _)| field != member).last();
        let Some((before, _)) = before.filter(|_| !self.unions.contains(owner)) else {
            return Some((ty, base));
        };
        // An unnamed member begins where the field before it ends, rounded up to its alignment.
        let before = field(before)?;
        let alignment = alignments.get(name)?;
        let end = format!("offsetof({ty}, {before}) + sizeof((({ty} *)0)->{before})");
        Some((ty, format!("({end} + {alignment} - 1) / {alignment} * {alignment}")))
    }

    /// Asserts the targets of aliases and the types of enums and fields.
    pub(crate) fn assert(&self, program: &mut Program) {
        for (name, integer) in &self.enums {
            if let Some(ty) = self.name(name) {
                program.assert("enums", &compatible(&ty, integer));
            }
        }
        for (name, ty) in &self.aliases {
            program.assert("aliases", &compatible(name, &self.declare(ty, "")));
        }
        for (owner, fields) in &self.aggregates {
            // An incomplete type shows none of its fields.
            if fields.is_empty() {
                continue;
            }
            let Some(place) = self.reachable(owner) else {
                continue;
            };
            for (name, ty) in fields {
                let Some(name) = field(name) else { continue };
                // The type of this field is defined by being this field's.
                if ty.contains("__bindgen_ty_") {
                    continue;
                }
                let actual = format!("__typeof__((({place} *)0)->{name})");
                program.assert("fields", &compatible(&actual, &self.declare(ty, "")));
            }
        }
    }

    /// The C declaration of `inner` with a Rust type: `char *inner[4]`.
    pub(crate) fn declare(&self, ty: &str, inner: &str) -> String {
        self.declare_as("", ty, inner)
    }

    fn declare_as(&self, qualifier: &str, ty: &str, inner: &str) -> String {
        let pointer = |rest| Some((rest, format!("*{qualifier}{inner}")));
        if let Some((target, inner)) = ty.strip_prefix("*mut ").and_then(pointer) {
            return self.declare_as("", target, &inner);
        }
        if let Some((target, inner)) = ty.strip_prefix("*const ").and_then(pointer) {
            return self.declare_as("const ", target, &inner);
        }
        if let Some((element, length)) =
            ty.strip_prefix('[').and_then(|rest| rest.strip_suffix("usize]")?.rsplit_once("; "))
        {
            let inner =
                if inner.starts_with('*') { format!("({inner})") } else { inner.to_owned() };
            return self.declare_as(qualifier, element, &format!("{inner}[{length}]"));
        }
        if let Some(function) = ty.strip_prefix("::core::option::Option<unsafe extern \"C\" fn(") {
            let function = function.trim_end_matches('>');
            let (list, result) = match function.rsplit_once(") -> ") {
                Some((list, result)) => (list, result),
                None => (function.trim_end_matches(')'), "::core::ffi::c_void"),
            };
            let list: Vec<_> = arguments(list).iter().map(|ty| self.declare(ty, "")).collect();
            return self.declare(result, &format!("(*{qualifier}{inner})({})", list.join(", ")));
        }
        let name = match primitive(ty) {
            Some(name) => name.to_owned(),
            None => self.name(ty).unwrap_or_else(|| ty.to_owned()),
        };
        format!("{qualifier}{name} {inner}").trim_end().to_owned()
    }
}

fn compatible(actual: &str, claimed: &str) -> String {
    format!("__builtin_types_compatible_p({actual}, {claimed})")
}

/// Tags of the header, with the keyword that goes before them.
fn tagged(header: &str) -> BTreeMap<&str, &'static str> {
    let words: Vec<&str> =
        header.split(|c: char| !super::is_identifier(c)).filter(|word| !word.is_empty()).collect();
    let typedefs: BTreeSet<&str> =
        header.split(['}', ';']).filter_map(|text| text.split_whitespace().last()).collect();
    let mut tags = BTreeMap::new();
    for pair in words.windows(2) {
        for keyword in ["struct", "union", "enum"] {
            // A word of prose may follow the keyword in a comment; a typedef needs no tag.
            if pair[0] == keyword && !typedefs.contains(pair[1]) {
                tags.insert(pair[1], keyword);
            }
        }
    }
    tags
}

/// C's name of a field: bindgen appends `_` to Rust's keywords and names what C left unnamed.
pub(crate) fn field(name: &str) -> Option<String> {
    match name {
        "type_" | "fn_" => Some(name.trim_end_matches('_').to_owned()),
        _ if name.starts_with("__bindgen_anon") => None,
        _ => Some(name.to_owned()),
    }
}

/// Splits `a: T, b: U` into the types; commas inside brackets do not count.
pub(crate) fn arguments(list: &str) -> Vec<String> {
    let mut types = Vec::new();
    let mut depth = 0;
    let mut current = String::new();
    for c in list.chars().chain([',']) {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if !current.ends_with('-') => depth -= 1,
            _ => {}
        }
        if c != ',' || depth > 0 {
            current.push(c);
            continue;
        }
        if let Some((_, ty)) = current.trim().split_once(": ") {
            types.push(ty.to_owned());
        }
        current.clear();
    }
    types
}

fn primitive(ty: &str) -> Option<&'static str> {
    Some(match ty {
        "::core::ffi::c_void" => "void",
        "::core::ffi::c_char" => "char",
        "::core::ffi::c_uchar" => "unsigned char",
        "::core::ffi::c_short" => "short",
        "::core::ffi::c_ushort" => "unsigned short",
        "::core::ffi::c_int" => "int",
        "::core::ffi::c_uint" => "unsigned int",
        "::core::ffi::c_longlong" => "long long",
        "::core::ffi::c_ulonglong" => "unsigned long long",
        "usize" => "size_t",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "f32" => "float",
        "f64" => "double",
        _ => return None,
    })
}
