//! Parses enough of PTX to find what a module declares, and to reject other text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

pub(crate) use layout::Parameter;
use layout::{extent, parameters};
use tokens::{Token, matching, tokens};

mod layout;
mod tokens;

/// The declarations of a text.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Ptx {
    /// The version: 70 for version 7.0.
    pub(crate) version: i32,
    pub(crate) kernels: BTreeMap<String, Entry>,
    /// Size, alignment and initial bytes of each global or constant variable.
    pub(crate) globals: BTreeMap<String, Global>,
    /// Functions that kernels or other functions call.
    pub(crate) functions: BTreeSet<String>,
    /// Functions and variables that another text must define.
    pub(crate) needs: BTreeSet<String>,
}

impl Ptx {
    /// Returns the names that other texts may use.
    pub(crate) fn defines(&self) -> impl Iterator<Item = &String> {
        let globals = self.globals.keys().chain(&self.functions);
        self.kernels.keys().chain(globals)
    }

    /// Returns a name that the text needs and does not define.
    pub(crate) fn unresolved(&self) -> Option<&String> {
        let mut needs = self.needs.iter();
        needs.find(|name| self.defines().all(|defined| defined != *name))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) parameters: Vec<Parameter>,
    /// Whether the body has no instruction but `ret`.
    pub(crate) is_empty: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Global {
    pub(crate) size: usize,
    pub(crate) initial: Vec<u8>,
}

/// An error message of the assembler.
pub(crate) type Complaint = String;

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

/// The texts that were parsed last, the newest last.
static READ: Mutex<Vec<(String, Arc<Ptx>)>> = Mutex::new(Vec::new());

/// More texts than a program usually loads repeatedly.
const MOST: usize = 8;

/// Parses a module, unless it is one of those parsed last.
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

/// Directives at module scope that end with a semicolon, beside variables.
const STATEMENTS: &[&str] = &[".alias", ".pragma", ".reg", ".local", ".shared", ".tex"];

/// Directives that begin a statement of a body.
const IN_BODIES: &[&str] = &[
    ".reg",
    ".local",
    ".shared",
    ".global",
    ".const",
    ".param",
    ".pragma",
    ".loc",
    ".file",
    ".section",
    ".branchtargets",
    ".calltargets",
    ".callprototype",
];

/// Returns whether a driver takes a text for PTX, and not for a binary.
pub(crate) fn is_ptx(text: &str) -> bool {
    let mut text = text.trim_start();
    while let Some(comment) = text.strip_prefix('/') {
        let end = if comment.starts_with('*') { "*/" } else { "\n" };
        text = comment.split_once(end).map_or("", |(_, behind)| behind.trim_start());
    }
    text.starts_with(".version")
}

fn parse(text: &str) -> Result<Ptx, Complaint> {
    let tokens = tokens(text);
    let mut ptx = Ptx::default();
    let end = Token { text: "", line: tokens.last().map_or(1, |token| token.line) };
    let token = |at: usize| tokens.get(at).unwrap_or(&end);
    let word = |at: usize| token(at).text;
    ptx.version = match word(0) {
        ".version" => version(word(1)),
        _ => None,
    }
    .ok_or_else(|| missing(token(0), ".version"))?;
    if word(2) != ".target" {
        return Err(missing(token(2), ".target"));
    }
    let mut at = 0;
    while at < tokens.len() {
        match word(at) {
            ".version" => at += 2,
            ".target" => {
                let start = at;
                at += 2;
                while word(at) == "," {
                    at += 2;
                }
                if !(start..at).any(|at| word(at).starts_with("sm_")) {
                    let what = "Target architecture not defined at start of file";
                    return Err(fatal(token(start), &format!("{what} {FILE}")));
                }
            }
            ".address_size" => {
                if !matches!(word(at + 1), "32" | "64") {
                    let what = "Illegal value for .address_size directive (must be 32 or 64)";
                    return Err(aborted(token(at), "error", what));
                }
                at += 2;
            }
            ".entry" => {
                let name = word(at + 1).to_owned();
                if !is_name(&name) {
                    return Err(syntax(token(at + 1)));
                }
                let open = at + 2;
                let mut declared = Vec::new();
                let mut behind = open;
                if word(open) == "(" {
                    let close = matching(&tokens, open, b'(', b')')?;
                    declared = parameters(&tokens[open + 1..close]);
                    behind = close + 1;
                }
                let is_empty = is_empty(&tokens[behind..]);
                let first = token(at);
                at = definition(&tokens, behind)?.ok_or_else(|| syntax(&end))?;
                if word(at - 1) == "}" {
                    let duplicate = format!("Duplicate definition of function '{name}'");
                    let entry = Entry { parameters: declared, is_empty };
                    if ptx.kernels.insert(name, entry).is_some() {
                        return Err(aborted(first, "error", &duplicate));
                    }
                }
            }
            ".extern" if matches!(word(at + 1), ".func" | ".global" | ".const") => {
                let end = statement_end(&tokens, at)?;
                let name = declared(&tokens[at + 1..end]);
                ptx.needs.extend(name.map(str::to_owned));
                at = end + 1;
            }
            ".extern" | ".visible" | ".weak" | ".common" if word(at + 1).starts_with('.') => {
                at += 1
            }
            ".func" => {
                let start = at;
                at = definition(&tokens, at)?.ok_or_else(|| syntax(&end))?;
                if word(at - 1) == "}" {
                    let name = declared(&tokens[start..at]);
                    ptx.functions.extend(name.map(str::to_owned));
                }
            }
            ".global" | ".const" => {
                let end = statement_end(&tokens, at)?;
                declare(&mut ptx, &tokens[at + 1..end]);
                at = end + 1;
            }
            ".section" => {
                let open = (at..tokens.len()).find(|&at| word(at) == "{");
                let open = open.ok_or_else(|| syntax(&end))?;
                at = matching(&tokens, open, b'{', b'}')? + 1;
            }
            // Lines of debug information.
            ".file" | ".loc" | "@" => at += line_length(&tokens[at..]),
            directive if STATEMENTS.contains(&directive) => at = statement_end(&tokens, at)? + 1,
            _ => return Err(syntax(token(at))),
        }
    }
    Ok(ptx)
}

/// Returns where a function ends, whose header continues at `at`: after its body, which is checked, or after
/// the semicolon of a declaration.
fn definition(tokens: &[Token<'_>], at: usize) -> Result<Option<usize>, Complaint> {
    let open = (at..tokens.len()).find(|&open| matches!(tokens[open].text, "{" | ";" | "}"));
    let Some(open) = open else {
        return Ok(None);
    };
    match tokens[open].text {
        "{" => {
            let close = matching(tokens, open, b'{', b'}')?;
            check_body(&tokens[open + 1..close], &tokens[close])?;
            Ok(Some(close + 1))
        }
        ";" => Ok(Some(open + 1)),
        _ => Err(syntax(&tokens[open])),
    }
}

/// Returns the number of tokens on the first token's line.
fn line_length(tokens: &[Token<'_>]) -> usize {
    tokens.iter().take_while(|token| token.line == tokens[0].line).count()
}

/// Returns whether the body that follows has no instruction but `ret`.
fn is_empty(tokens: &[Token<'_>]) -> bool {
    let mut words = tokens.iter().map(|token| token.text).skip_while(|word| *word != "{").skip(1);
    let body = words.by_ref().take_while(|word| *word != "}");
    body.eq(["ret", ";"])
}

/// Returns the end of the statement that begins at `at`.
fn statement_end(tokens: &[Token<'_>], at: usize) -> Result<usize, Complaint> {
    let end = (at..tokens.len()).find(|&end| tokens[end].text == ";");
    end.ok_or_else(|| syntax(&tokens[at]))
}

/// Returns the name in a declaration. A function's result may precede it.
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

const FILE: &str = "'application ptx input'";

fn aborted(token: &Token<'_>, grade: &str, what: &str) -> Complaint {
    format!(
        "ptxas application ptx input, line {}; {grade:<8}: {what}\nptxas fatal   : Ptx assembly \
         aborted due to errors",
        token.line
    )
}

fn fatal(token: &Token<'_>, what: &str) -> Complaint {
    aborted(token, "fatal", what)
}

fn syntax(token: &Token<'_>) -> Complaint {
    fatal(token, &format!("Parsing error near '{}': syntax error", token.text))
}

fn missing(token: &Token<'_>, directive: &str) -> Complaint {
    fatal(token, &format!("Missing {directive} directive at start of file {FILE}"))
}

/// Parses a version: "7.0" as 70.
fn version(text: &str) -> Option<i32> {
    let (major, minor) = text.split_once('.')?;
    Some(10 * major.parse::<i32>().ok()? + minor.parse::<i32>().ok()?)
}

/// Declares a variable: `.align 4 .u32 counter = 7`.
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

/// Checks that every statement of a body, which `close` ends, begins with an instruction, a label or a
/// directive, and ends with a semicolon.
fn check_body(body: &[Token<'_>], close: &Token<'_>) -> Result<(), Complaint> {
    let mut rest = body;
    while let Some(first) = rest.first() {
        let second = rest.get(1).map_or("", |token| token.text);
        if matches!(first.text, "{" | "}" | ";") || second == ":" {
            rest = &rest[if second == ":" { 2 } else { 1 }..];
            continue;
        }
        if first.text.starts_with('.') && !IN_BODIES.contains(&first.text) {
            return Err(syntax(first));
        }
        if matches!(first.text, ".loc" | ".file" | ".section") {
            rest = &rest[line_length(rest)..];
            continue;
        }
        let end = rest.iter().position(|token| token.text == ";").ok_or_else(|| syntax(close))?;
        let mut statement = &rest[..end];
        if first.text == "@" {
            // A predicate, possibly negated.
            let skip = if second == "!" { 3 } else { 2 };
            statement = statement.get(skip..).unwrap_or_default();
        }
        if let Some(instruction) = statement.first().filter(|word| !word.text.starts_with('.')) {
            let opcode = instruction.text.split('.').next().unwrap_or_default();
            if !OPCODES.contains(opcode) {
                let what = format!("Not a name of any known instruction: '{}'", instruction.text);
                return Err(aborted(instruction, "error", &what));
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
        let parameters = |name| &ptx.kernels[name].parameters;
        assert!(parameters("f").iter().map(|it| it.size).eq([8, 24, 4]));
        assert_eq!(parameters("g").len(), 0);
        assert_eq!(ptx.globals["counter"].initial, [7, 0, 0, 0]);
        assert_eq!(ptx.globals["table"].size, 12);
    }

    #[test]
    fn a_text_is_read_once() {
        let first = read(TEXT).expect("PTX");
        assert_eq!(*first, parse(TEXT).expect("PTX"));
        assert!(Arc::ptr_eq(&first, &read(TEXT).expect("PTX")));
        for number in 0..MOST {
            read(&format!(".version 7.0\n.target sm_70\n// {number}")).expect("PTX");
        }
        assert!(!Arc::ptr_eq(&first, &read(TEXT).expect("PTX")));
    }

    #[test]
    fn finds_what_is_missing() {
        let caller =
            ".version 7.0 .target sm_70 .extern .func (.param .b32 r) twice(.param .b32 x);
            .extern .global .align 4 .u32 counter; .extern .shared .align 4 .b8 buffer[];
            .func own(.param .b32 x) { ret; } .entry f() { call own, (x); ret; }";
        let caller = parse(caller).expect("PTX");
        assert!(caller.needs.iter().eq(["counter", "twice"]));
        assert!(caller.defines().eq(["f", "own"]));
        assert_eq!(caller.unresolved().expect("something"), "counter");
        let both = ".version 7.0 .target sm_70 .extern .func twice(.param .b32 x);
            .visible .func twice(.param .b32 x) { ret; }";
        assert_eq!(parse(both).expect("PTX").unresolved(), None);
    }

    /// Each text follows a header. The line and the complaint are those of an H200 with driver 580.
    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, expected) in [
            ("hello", "fatal   : Parsing error near 'hello': syntax error"),
            ("hello;", "fatal   : Parsing error near 'hello': syntax error"),
            (".entry f(){ret;}}", "fatal   : Parsing error near '}': syntax error"),
            (".entry f(){hello;}", "error   : Not a name of any known instruction: 'hello'"),
            (".entry f()", "fatal   : Parsing error near '': syntax error"),
            (".entry (){ret;}", "fatal   : Parsing error near '(': syntax error"),
            (".oops x;", "fatal   : Parsing error near '.oops': syntax error"),
            (".entry f(){.oops x;ret;}", "fatal   : Parsing error near '.oops': syntax error"),
            (";", "fatal   : Parsing error near ';': syntax error"),
            ("{}", "fatal   : Parsing error near '{': syntax error"),
            (".entry f(){ret}", "fatal   : Parsing error near '}': syntax error"),
            (".entry f(){ret;} .entry f(){ret;}", "error   : Duplicate definition of function 'f'"),
        ] {
            let text = format!(".version 7.0\n.target sm_70\n.address_size 64\n{text}");
            let line = format!("ptxas application ptx input, line 4; {expected}\n");
            let said = parse(&text).expect_err(&text);
            assert!(said.starts_with(&line), "{text}: {said}");
        }
    }

    /// For these texts the driver names another token.
    #[test]
    fn braces_and_statements_end() {
        for text in [
            ".entry f(){ret;",
            ".entry f(){hello",
            ".entry f(.param .u32 x{ret;}",
            ".global .u32 x",
            ".visible",
        ] {
            let text = format!(".version 7.0\n.target sm_70\n{text}");
            assert!(parse(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_header_is_required() {
        for (text, expected) in [
            (".version x\n.target sm_70\n", "Missing .version directive"),
            (".version 7.0\n", "Missing .target directive"),
            (".version 7.0\n.entry f(){ret;}", "line 2; fatal   : Missing .target directive"),
            (".version 7.0\n.address_size 64\n.target sm_70\n", "Missing .target directive"),
            (".version 7.0\n.target gpu\n", "line 2; fatal   : Target architecture not defined"),
            (".version 7.0\n.target sm_70\n.address_size 16", "line 3; error   : Illegal value"),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
        assert!(is_ptx("\n// a comment\n.version 7.0") && !is_ptx(".target sm_70\n.version 7.0"));
        assert!(parse(".version 7.0\n.target sm_90a, debug\n").is_ok());
    }
}
