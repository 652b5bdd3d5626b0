//! Parses enough of PTX to know what a module declares, and to reject text that is no PTX.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// What a text declares.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ptx {
    /// 70 for version 7.0.
    pub(crate) version: i32,
    pub(crate) kernels: BTreeMap<String, Entry>,
    /// Size, alignment and initial bytes of each global or constant variable.
    pub(crate) globals: BTreeMap<String, Global>,
    /// Functions that kernels and each other call.
    pub(crate) functions: BTreeSet<String>,
    /// Functions and variables that another text must define.
    pub(crate) needs: BTreeSet<String>,
}

impl Ptx {
    /// Names that other texts may use.
    pub(crate) fn defines(&self) -> impl Iterator<Item = &String> {
        let globals = self.globals.keys().chain(&self.functions);
        self.kernels.keys().chain(globals)
    }

    /// A name that the text needs and does not define.
    pub(crate) fn unresolved(&self) -> Option<&String> {
        let mut needs = self.needs.iter();
        needs.find(|name| self.defines().all(|defined| defined != *name))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Sizes of the parameters.
    pub(crate) parameters: Vec<usize>,
    /// The body has no instruction but `ret`.
    pub(crate) is_empty: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Global {
    pub(crate) size: usize,
    pub(crate) initial: Vec<u8>,
}

/// An error message of the assembler.
pub(crate) type Complaint = String;

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// The names of instructions.
static OPCODES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| NAMES.split(' ').collect());

const NAMES: &str = "abs activemask add addc alloca and applypriority atom bar barrier bfe bfi \
    bfind bmsk bra brev brkpt brx call clz cnot copysign cos cp createpolicy cvt cvta discard div \
    dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix \
    ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar min mma mov movmatrix mul mul24 \
    multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret rsqrt \
    sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix \
    sub subc suld suq sured sust szext tanh tensormap testp tex tld4 trap txq vabsdiff vadd vmad \
    vmax vmin vote vset vshl vshr vsub wgmma wmma xor";

/// The texts that were read last, the newest last.
static READ: Mutex<Vec<(String, Arc<Ptx>)>> = Mutex::new(Vec::new());

/// More than the texts that one program loads repeatedly.
const MOST: usize = 8;

/// Parses a module, unless it was one of the last.
pub(crate) fn read(text: &str) -> Result<Arc<Ptx>, Complaint> {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, ptx)) = read.iter().find(|(known, _)| known == text) {
        return Ok(Arc::clone(ptx));
    }
    let ptx = Arc::new(parse(text)?);
    if read.len() == MOST {
        read.remove(0);
    }
    read.push((text.to_owned(), Arc::clone(&ptx)));
    Ok(ptx)
}

fn parse(text: &str) -> Result<Ptx, Complaint> {
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
                    let close = matching(&tokens, open, b'(', b')')?;
                    parameters = sizes(&tokens[open + 1..close]);
                    at = close + 1;
                }
                let is_empty = is_empty(&tokens[at..]);
                ptx.kernels.insert(name, Entry { parameters, is_empty });
            }
            ".extern" if matches!(word(at + 1), ".func" | ".global" | ".const") => {
                let end = statement_end(&tokens, at)?;
                let name = declared(&tokens[at + 1..end]);
                ptx.needs.extend(name.map(str::to_owned));
                at = end + 1;
            }
            ".func" => {
                let end = (at..tokens.len()).find(|&end| matches!(word(end), "{" | ";"));
                let end = end.unwrap_or(tokens.len());
                if word(end) == "{" {
                    let name = declared(&tokens[at..end]);
                    ptx.functions.extend(name.map(str::to_owned));
                }
                at = end;
            }
            "{" => {
                let close = matching(&tokens, at, b'{', b'}')?;
                check_body(&tokens[at + 1..close])?;
                at = close + 1;
            }
            ".global" | ".const" => {
                let end = statement_end(&tokens, at)?;
                declare(&mut ptx, &tokens[at + 1..end]);
                at = end + 1;
            }
            _ => at += 1,
        }
    }
    Ok(ptx)
}

/// Whether the body that follows has no instruction but `ret`.
fn is_empty(tokens: &[Token<'_>]) -> bool {
    let mut words = tokens.iter().map(|token| token.text).skip_while(|word| *word != "{").skip(1);
    let body = words.by_ref().take_while(|word| *word != "}");
    body.eq(["ret", ";"])
}

/// The end of the statement that begins at `at`.
fn statement_end(tokens: &[Token<'_>], at: usize) -> Result<usize, Complaint> {
    let end = (at..tokens.len()).find(|&end| tokens[end].text == ";");
    end.ok_or_else(|| complaint(&tokens[at], "Parsing error near"))
}

/// The name in a declaration; a function's result may precede it.
fn declared<'a>(words: &[Token<'a>]) -> Option<&'a str> {
    let mut depth = 0;
    let mut words = words.iter().map(|token| token.text);
    words.find(|word| {
        match *word {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth == 0 && is_name(word)
    })
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$')
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

/// The kind of token that a byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Blank,
    Word,
    /// A token by itself.
    Mark,
}

/// By byte, as a table because Miri would interpret a computation. All significant characters are
/// ASCII; the others count as letters.
static CLASSES: [Class; 256] = {
    let mut classes = [Class::Mark; 256];
    let mut number = 0;
    while number < classes.len() {
        let byte = number as u8;
        classes[number] = match byte {
            b'.' | b'_' | b'$' | b'%' => Class::Word,
            _ if byte.is_ascii_alphanumeric() || !byte.is_ascii() => Class::Word,
            _ if byte.is_ascii_whitespace() => Class::Blank,
            _ => Class::Mark,
        };
        number += 1;
    }
    classes
};

fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let class = CLASSES[usize::from(bytes[at])];
        let through = |end: &str| match text[start + 1..].find(end) {
            Some(found) => start + 1 + found + end.len(),
            None => text.len(),
        };
        let is_token = match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'/')) => {
                at = through("\n");
                false
            }
            (b'/', Some(b'*')) => {
                at = through("*/");
                false
            }
            (b'"', _) => {
                at = through("\"");
                true
            }
            _ => {
                at += 1;
                while class != Class::Mark
                    && at < bytes.len()
                    && CLASSES[usize::from(bytes[at])] == class
                {
                    at += 1;
                }
                class != Class::Blank
            }
        };
        if is_token {
            let text = &text[start..at];
            tokens.push(Token { text, line });
        } else {
            let mut blank = start;
            while blank < at {
                line += usize::from(bytes[blank] == b'\n');
                blank += 1;
            }
        }
    }
    tokens
}

/// The closing token for the one at `open`.
fn matching(tokens: &[Token<'_>], open: usize, opens: u8, closes: u8) -> Result<usize, Complaint> {
    let mut depth = 0;
    let mut at = open;
    while at < tokens.len() {
        match tokens[at].text.as_bytes() {
            [mark] if *mark == opens => depth += 1,
            [mark] if *mark == closes => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(at);
        }
        at += 1;
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

/// The size of an element and of the whole declaration, in bytes.
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
    let name = declaration.iter().map(|token| token.text).find(|word| is_name(word));
    let numbers = value.iter().filter_map(|token| token.text.parse::<i64>().ok());
    let mut initial: Vec<u8> =
        numbers.flat_map(|number| number.to_le_bytes().into_iter().take(element)).collect();
    initial.resize(size, 0);
    if let Some(name) = name.filter(|_| size > 0) {
        ptx.globals.insert(name.to_owned(), Global { size, initial });
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
            // A predicate, possibly negated.
            let skip = if second == "!" { 3 } else { 2 };
            statement = statement.get(skip..).unwrap_or_default();
        }
        // Inside the braces of a call, or a debug line: not checked.
        if first.text.starts_with('.') {
            let line = first.line;
            let is_line = matches!(first.text, ".loc" | ".pragma" | ".file" | ".section");
            let skip = if is_line {
                rest.iter().position(|token| token.line != line).unwrap_or(rest.len())
            } else {
                end + 1
            };
            rest = &rest[skip..];
            continue;
        }
        if let Some(instruction) = statement.first() {
            let opcode = instruction.text.split('.').next().unwrap_or_default();
            if !OPCODES.contains(opcode) {
                return Err(complaint(instruction, "Not a name of any known instruction:"));
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
        assert_eq!(ptx.kernels["f"].parameters, [8, 24, 4]);
        assert_eq!(ptx.kernels["g"].parameters, [0; 0]);
        assert_eq!(ptx.globals["counter"].initial, [7, 0, 0, 0]);
        assert_eq!(ptx.globals["table"].size, 12);
    }

    #[test]
    fn a_text_is_read_once() {
        let first = read(TEXT).expect("PTX");
        assert_eq!(*first, parse(TEXT).expect("PTX"));
        assert!(Arc::ptr_eq(&first, &read(TEXT).expect("PTX")));
        for number in 0..MOST {
            read(&format!(".version 7.0\n// {number}")).expect("PTX");
        }
        assert!(!Arc::ptr_eq(&first, &read(TEXT).expect("PTX")));
    }

    #[test]
    fn words_marks_text_and_comments_are_distinguished() {
        let text = "a.b%1/*\n*/ \"x y\"{//\n é;\n\n@!";
        let found: Vec<_> = tokens(text).iter().map(|t| (t.text, t.line)).collect();
        let expected =
            [("a.b%1", 1), ("\"x y\"", 2), ("{", 2), ("é", 3), (";", 3), ("@", 5), ("!", 5)];
        assert_eq!(found, expected);
    }

    #[test]
    fn finds_what_is_missing() {
        let caller = ".version 7.0 .extern .func (.param .b32 r) twice(.param .b32 x);
            .extern .global .align 4 .u32 counter; .extern .shared .align 4 .b8 buffer[];
            .func own(.param .b32 x) { ret; } .entry f() { call own, (x); ret; }";
        let caller = parse(caller).expect("PTX");
        assert!(caller.needs.iter().eq(["counter", "twice"]));
        assert!(caller.defines().eq(["f", "own"]));
        assert_eq!(caller.unresolved().expect("something"), "counter");
        let both = ".version 7.0 .extern .func twice(.param .b32 x);
            .visible .func twice(.param .b32 x) { ret; }";
        assert_eq!(parse(both).expect("PTX").unresolved(), None);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        assert!(parse("").unwrap_err().contains(".version"));
        let error = parse(".version 7.0\n.entry f()\n{\n  oops %r1;\n}").unwrap_err();
        assert!(error.contains("line 4") && error.contains("'oops'"), "{error}");
        assert!(parse(".version 7.0 .entry f() { ret;").is_err());
    }
}
