//! As much of PTX as tells what a module holds, and that a text is none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// What a text declares.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ptx {
    /// 70 for version 7.0.
    pub(crate) version: i32,
    /// Sizes of the parameters of each kernel.
    pub(crate) kernels: BTreeMap<String, Vec<usize>>,
    /// Size, alignment and initial bytes of each global or constant variable.
    pub(crate) globals: BTreeMap<String, Global>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Global {
    pub(crate) size: usize,
    pub(crate) initial: Vec<u8>,
}

/// What the assembler would say.
pub(crate) type Complaint = String;

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Names with which an instruction begins.
static OPCODES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| NAMES.split(' ').collect());

const NAMES: &str = "abs activemask add addc alloca and applypriority atom bar barrier bfe bfi \
    bfind bmsk bra brev brkpt brx call clz cnot copysign cos cp createpolicy cvt cvta discard div \
    dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix \
    ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mma mov movmatrix mul mul24 \
    multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret rsqrt \
    sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix \
    sub subc suld suq sured sust szext tanh tensormap testp tex tld4 trap txq vabsdiff vadd vmad \
    vmax vmin vote vset vshl vshr vsub wgmma wmma xor";

/// Reads a module.
pub(crate) fn parse(text: &str) -> Result<Ptx, Complaint> {
    let tokens = tokens(text);
    let mut ptx = Ptx::default();
    let mut at = 0;
    if tokens.first().map(|token| token.text) != Some(".version") {
        return Err(
            "ptxas fatal   : Missing .version directive at start of file 'application ptx input'"
                .to_owned(),
        );
    }
    let word = |at: usize| tokens.get(at).map_or("", |token: &Token<'_>| token.text);
    while at < tokens.len() {
        match word(at) {
            ".version" => {
                ptx.version = version(word(at + 1));
                at += 2;
            }
            ".entry" => {
                let name = word(at + 1).to_owned();
                let open = at + 2;
                let mut parameters = Vec::new();
                at = open;
                if word(open) == "(" {
                    let close = matching(&tokens, open, "(", ")")?;
                    parameters = sizes(&tokens[open + 1..close]);
                    at = close + 1;
                }
                ptx.kernels.insert(name, parameters);
            }
            "{" => {
                let close = matching(&tokens, at, "{", "}")?;
                check_body(&tokens[at + 1..close])?;
                at = close + 1;
            }
            ".global" | ".const" => {
                let end = (at..tokens.len())
                    .find(|&end| word(end) == ";")
                    .ok_or_else(|| complaint(&tokens[at], "Parsing error near"))?;
                declare(&mut ptx, &tokens[at + 1..end]);
                at = end + 1;
            }
            _ => at += 1,
        }
    }
    Ok(ptx)
}

fn complaint(token: &Token<'_>, what: &str) -> Complaint {
    format!(
        "ptxas application ptx input, line {}; error   : {what} '{}'\nptxas fatal   : Ptx assembly \
         aborted due to errors",
        token.line, token.text
    )
}

/// "7.0" as 70.
fn version(text: &str) -> i32 {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    let number = |text: &str| text.parse().unwrap_or(0);
    10 * number(major) + number(minor)
}

/// Byte by byte: all that means something is ASCII, and the rest is as good as letters.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(&first) = rest.as_bytes().first() {
        let through = |end: &str| match rest[1..].find(end) {
            Some(at) => 1 + at + end.len(),
            None => rest.len(),
        };
        let run = |of: fn(u8) -> bool| rest.bytes().position(|byte| !of(byte));
        let is_blank = |byte: u8| byte.is_ascii_whitespace();
        let (len, is_token) = if rest.starts_with("//") {
            (through("\n"), false)
        } else if rest.starts_with("/*") {
            (through("*/"), false)
        } else if is_blank(first) {
            (run(is_blank).unwrap_or(rest.len()), false)
        } else if first == b'"' {
            (through("\""), true)
        } else if is_part_of_a_word(first) {
            (run(is_part_of_a_word).unwrap_or(rest.len()), true)
        } else {
            (1, true)
        };
        let (text, behind) = rest.split_at(len);
        if is_token {
            tokens.push(Token { text, line });
        } else {
            line += text.matches('\n').count();
        }
        rest = behind;
    }
    tokens
}

fn is_part_of_a_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$' | b'%') || !byte.is_ascii()
}

fn matching(
    tokens: &[Token<'_>],
    open: usize,
    opens: &str,
    closes: &str,
) -> Result<usize, Complaint> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.text == opens {
            depth += 1;
        } else if token.text == closes {
            depth -= 1;
            if depth == 0 {
                return Ok(at);
            }
        }
    }
    Err(complaint(&tokens[open], "Parsing error near"))
}

/// Bytes of a type: `.u32`, `.b8`.
fn type_size(word: &str) -> Option<usize> {
    let digits = word.strip_prefix('.')?;
    let digits = digits.trim_start_matches(['b', 'u', 's', 'f']);
    match (word, digits) {
        (".pred", _) => Some(1),
        (_, "8") => Some(1),
        (_, "16") => Some(2),
        (_, "32") => Some(4),
        (_, "64") => Some(8),
        _ => None,
    }
}

/// The parameters of a list, in bytes.
fn sizes(list: &[Token<'_>]) -> Vec<usize> {
    let parameters = list.split(|token| token.text == ",");
    let parameters = parameters.filter(|words| !words.is_empty());
    parameters.map(|words| extent(words).1).collect()
}

/// The size of the element, and that of all of a declaration, in bytes.
fn extent(words: &[Token<'_>]) -> (usize, usize) {
    let element = words.iter().find_map(|token| type_size(token.text));
    let element = element.unwrap_or(0);
    let mut count = 1;
    for (at, token) in words.iter().enumerate() {
        if token.text == "[" {
            let number = words.get(at + 1).and_then(|token| token.text.parse().ok());
            count *= number.unwrap_or(1);
        }
    }
    (element, element * count)
}

/// A variable: `.align 4 .u32 counter = 7`.
fn declare(ptx: &mut Ptx, words: &[Token<'_>]) {
    let is = words.iter().position(|token| token.text == "=");
    let (declaration, value) = words.split_at(is.unwrap_or(words.len()));
    let (element, size) = extent(declaration);
    let name = declaration
        .iter()
        .map(|token| token.text)
        .find(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$'));
    let numbers = value
        .iter()
        .filter_map(|token| token.text.parse::<i64>().ok());
    let mut initial: Vec<u8> = numbers
        .flat_map(|number| number.to_le_bytes().into_iter().take(element))
        .collect();
    initial.resize(size, 0);
    if let Some(name) = name.filter(|_| size > 0) {
        ptx.globals
            .insert(name.to_owned(), Global { size, initial });
    }
}

/// Whether every statement of a body begins with an instruction, a label or a directive.
fn check_body(body: &[Token<'_>]) -> Result<(), Complaint> {
    let mut rest = body;
    while let Some(first) = rest.first() {
        let second = rest.get(1).map_or("", |token| token.text);
        if matches!(first.text, "{" | "}" | ";") || second == ":" {
            rest = &rest[if second == ":" { 2 } else { 1 }..];
            continue;
        }
        let end = rest.iter().position(|token| token.text == ";");
        let end = end.unwrap_or(rest.len() - 1);
        let mut statement = &rest[..end];
        if first.text == "@" {
            // A predicate, which may be negated.
            let skip = if second == "!" { 3 } else { 2 };
            statement = statement.get(skip..).unwrap_or_default();
        }
        // Inside a call's braces, or a line of debug information: nothing to check.
        if first.text.starts_with('.') {
            let line = first.line;
            let is_line = matches!(first.text, ".loc" | ".pragma" | ".file" | ".section");
            let skip = if is_line {
                rest.iter()
                    .position(|token| token.line != line)
                    .unwrap_or(rest.len())
            } else {
                end + 1
            };
            rest = &rest[skip..];
            continue;
        }
        if let Some(instruction) = statement.first() {
            let opcode = instruction.text.split('.').next().unwrap_or_default();
            if !OPCODES.contains(opcode) {
                return Err(complaint(
                    instruction,
                    "Not a name of any known instruction:",
                ));
            }
        }
        rest = &rest[end + 1..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        // a comment
        .version 7.0
        .target sm_52
        .address_size 64
        .visible .global .align 4 .u32 counter = 7;
        .visible .const .align 4 .b8 table[12];
        .visible .entry f(
            .param .u64 .ptr .global .align 4 to,
            .param .align 8 .b8 value[24],
            .param .f32 x
        )
        .maxntid 256, 1, 1
        {
            .reg .b32 %r<4>;
            .loc 1 5 1
            mov.u32 %r1, %tid.x;
        again:
            @!%p1 bra again;
            ret;
        }
        .entry g() { ret; }
    ";

    #[test]
    fn finds_kernels_and_globals() {
        let ptx = parse(TEXT).expect("PTX");
        assert_eq!(ptx.version, 70);
        assert_eq!(ptx.kernels["f"], [8, 24, 4]);
        assert_eq!(ptx.kernels["g"], [0; 0]);
        assert_eq!(ptx.globals["counter"].initial, [7, 0, 0, 0]);
        assert_eq!(ptx.globals["table"].size, 12);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        assert!(parse("").unwrap_err().contains(".version"));
        let error = parse(".version 7.0\n.entry f()\n{\n  oops %r1;\n}").unwrap_err();
        assert!(
            error.contains("line 4") && error.contains("'oops'"),
            "{error}"
        );
        assert!(parse(".version 7.0 .entry f() { ret;").is_err());
    }
}
