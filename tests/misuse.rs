//! Misuse that must not compile.
//!
//! Each file of `tests/misuse/` begins with the expected error code, `//~ E0277`, or several, or with
//! `//~ an error without a code`. It holds the misuse under `#[cfg(misuse)]`, and a twin that compiles under
//! `#[cfg(not(misuse))]`. The two differ only in the misuse, so the twin proves that the misuse fails for the
//! right reason: a mistyped or renamed item breaks the twin too. Each further line `//~ says TEXT` is a text
//! that the compiler's message must contain, such as a hint at what to write instead.
//!
//! This test copies the cases into a scratch crate, as its examples, and runs cargo on it twice.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The directory of the scratch crate and its build output.
const SCRATCH: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/misuse");

const MANIFEST: &str = r#"
[package]
name = "misuse"
edition = "2024"

[workspace]

[features]
misuse = []

[dependencies]
cuda-core = { path = "CUDA_CORE", default-features = false }

[lints.rust]
unexpected_cfgs = { level = "warn", check-cfg = ["cfg(misuse)"] }
dead_code = "allow"
"#;

/// Sets the cfg by a feature, which, unlike `--cfg` in `RUSTFLAGS`, does not rebuild the dependencies.
const BUILD_SCRIPT: &str = r#"
fn main() {
    if std::env::var_os("CARGO_FEATURE_MISUSE").is_some() {
        println!("cargo::rustc-cfg=misuse");
    }
}
"#;

/// The errors of each example that has errors.
type Errors = BTreeMap<String, Found>;

/// The errors of one example.
#[derive(Debug, Default, PartialEq)]
struct Found {
    codes: BTreeSet<String>,
    /// What the compiler prints about them.
    messages: String,
}

/// The errors that a case expects of the compiler.
struct Expected {
    code: String,
    says: Vec<String>,
}

#[test]
#[cfg_attr(miri, ignore = "runs cargo")]
fn misuse_does_not_compile_and_its_twin_does() {
    let cases = cases();
    assert!(!cases.is_empty(), "tests/misuse holds no case");
    write_scratch_crate();
    let twins = errors(&check(&[]));
    let misuses = errors(&check(&["--features", "misuse"]));
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(name, expected)| {
            verdict(expected, twins.get(name), misuses.get(name))
                .err()
                .map(|reason| format!("{name}: {reason}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// Returns what is wrong with a case, if anything, given the errors of its twin and its misuse.
fn verdict(
    expected: &Expected,
    twin: Option<&Found>,
    misuse: Option<&Found>,
) -> Result<(), String> {
    let Expected { code, says } = expected;
    if let Some(Found { codes, .. }) = twin {
        return Err(format!("the twin does not compile: {codes:?}"));
    }
    let Some(Found { codes, messages }) = misuse else {
        return Err(format!("the misuse compiles, {code} expected"));
    };
    // `code` is several codes, or the text for none.
    if codes.iter().ne(code.split(' ')) && codes.iter().ne([code]) {
        return Err(format!("the misuse fails with {codes:?}, {code} alone expected"));
    }
    match says.iter().find(|text| !messages.contains(*text)) {
        Some(text) => Err(format!("the compiler does not say {text:?}, but\n{messages}")),
        None => Ok(()),
    }
}

/// Returns name and expected errors of each case.
fn cases() -> Vec<(String, Expected)> {
    let mut cases: Vec<_> = files().iter().map(|path| (name(path), expected(path))).collect();
    cases.sort_by(|(one, _), (other, _)| one.cmp(other));
    cases
}

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misuse");
    let entries = fs::read_dir(directory).expect("tests/misuse is a directory");
    entries.map(|entry| entry.expect("an entry can be read").path()).collect()
}

fn name(path: &Path) -> String {
    path.file_stem().expect("a case has a name").to_string_lossy().into_owned()
}

fn expected(path: &Path) -> Expected {
    let text = fs::read_to_string(path).expect("a case is a text file");
    let mut marked = text.lines().map_while(|line| line.strip_prefix("//~ "));
    let code = marked.next();
    let code =
        code.unwrap_or_else(|| panic!("{}: the first line is not `//~ CODE`", path.display()));
    for half in ["#[cfg(misuse)]", "#[cfg(not(misuse))]"] {
        assert!(text.contains(half), "{}: no {half}", path.display());
    }
    let says = marked.map(|line| {
        let text = line.strip_prefix("says ");
        text.unwrap_or_else(|| panic!("{}: `//~ {line}`", path.display())).to_owned()
    });
    Expected { code: code.trim().to_owned(), says: says.collect() }
}

fn write_scratch_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scratch = Path::new(SCRATCH);
    // Removes examples of cases that no longer exist.
    let _ = fs::remove_dir_all(scratch.join("examples"));
    fs::create_dir_all(scratch.join("examples")).expect("a directory can be made");
    fs::create_dir_all(scratch.join("src")).expect("a directory can be made");
    let core = root.join("cuda-core").display().to_string().replace('\\', "/");
    let write = |file: &str, text: &str| {
        fs::write(scratch.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    };
    write("Cargo.toml", &MANIFEST.replace("CUDA_CORE", &core));
    write("build.rs", BUILD_SCRIPT);
    write("src/lib.rs", "");
    // The versions in the workspace's lock file are available offline.
    fs::copy(root.join("Cargo.lock"), scratch.join("Cargo.lock")).expect("the lock file is there");
    for case in files() {
        let to = scratch.join("examples").join(case.file_name().expect("a case has a name"));
        fs::copy(&case, to).expect("a case can be copied");
    }
}

/// Returns cargo's messages about the scratch crate.
fn check(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--examples", "--keep-going", "--message-format=json"])
        .args(arguments)
        .args(["--target-dir", "target"])
        .current_dir(SCRATCH)
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("cargo starts");
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let core = messages.lines().any(|line| {
        let message: Value = serde_json::from_str(line).expect("cargo writes JSON");
        message["reason"] == "compiler-artifact" && message["target"]["name"] == "cuda_core"
    });
    // Without this check, every misuse would fail for another reason.
    assert!(core, "cuda-core does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    messages
}

fn errors(messages: &str) -> Errors {
    let mut errors = Errors::new();
    for line in messages.lines() {
        let line: Value = serde_json::from_str(line).expect("cargo writes JSON");
        let message = &line["message"];
        if line["reason"] != "compiler-message" || message["level"] != "error" {
            continue;
        }
        let code = match message["code"]["code"].as_str() {
            Some(code) => code,
            // The compiler's summary line, which is not an error.
            None if is_summary(message["message"].as_str()) => continue,
            None => "an error without a code",
        };
        let name = line["target"]["name"].as_str().expect("a target has a name");
        let found = errors.entry(name.into()).or_default();
        found.codes.insert(code.into());
        found.messages.push_str(message["rendered"].as_str().unwrap_or_default());
    }
    errors
}

fn is_summary(message: Option<&str>) -> bool {
    message.is_some_and(|text| text.starts_with("aborting due to"))
}

mod mechanism {
    use super::*;

    fn found(codes: &[&str], messages: &str) -> Found {
        let codes = codes.iter().map(|&code| code.to_owned()).collect();
        Found { codes, messages: messages.to_owned() }
    }

    fn wanted(says: &[&str]) -> Expected {
        let says = says.iter().map(|&text| text.to_owned()).collect();
        Expected { code: "E0277".to_owned(), says }
    }

    #[test]
    fn exactly_the_named_code() {
        let verdict = |codes: &[&str]| verdict(&wanted(&[]), None, Some(&found(codes, "")));
        assert_eq!(verdict(&["E0277"]), Ok(()));
        assert!(verdict(&["E0277", "E0308"]).is_err());
        assert!(verdict(&["E0308"]).is_err());
    }

    #[test]
    fn every_text_that_is_asked_for() {
        let misuse = found(&["E0277"], "write `&values`\nor `&mut values`");
        let verdict = |says: &[&str]| verdict(&wanted(says), None, Some(&misuse));
        assert_eq!(verdict(&["`&values`", "`&mut values`"]), Ok(()));
        assert!(verdict(&["`&values`", "values.slice"]).is_err_and(|why| why.contains("slice")));
    }

    #[test]
    fn a_misuse_that_compiles_and_a_twin_that_does_not() {
        let wanted = wanted(&[]);
        assert!(verdict(&wanted, None, None).is_err_and(|reason| reason.contains("compiles")));
        let (broken, misuse) = (found(&["E0425"], ""), found(&["E0277"], ""));
        assert!(verdict(&wanted, Some(&broken), Some(&misuse)).is_err());
    }

    #[test]
    fn codes_are_read_from_errors_only() {
        let message = |level: &str, code: &str| {
            format!(
                r#"{{"reason":"compiler-message","target":{{"name":"a"}},"message":
                {{"level":"{level}","message":"text","rendered":"{level}!","code":{{"code":"{code}"}}}}}}"#
            )
            .replace('\n', " ")
        };
        let closing = r#"{"reason":"compiler-message","target":{"name":"a"},"message":{"level":"error","message":"aborting due to 1 previous error","code":null}}"#;
        let text = [message("warning", "dead_code"), message("error", "E0277"), closing.into()];
        let expected = Errors::from([("a".into(), found(&["E0277"], "error!"))]);
        assert_eq!(errors(&text.join("\n")), expected);
    }
}
