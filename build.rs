//! A C compiler checks the bindings against the header; `tests/abi.rs` reports the result.
//!
//! `tests/oracle` turns the declarations of the bindings into C static assertions over `wrapper.h`.
//! For a header of another release than the bundled bindings', the compiler checks the bindings
//! that bindgen made of that header alone, which are then compared with the bundled ones. Without a
//! header or a compiler, the report says so and the test counts as not run.
//!
//! The script also extracts the examples from the README, which `tests/gpu/readme.rs` runs, and those of the
//! cookbook and of the page on traces, which `tests/gpu/cookbook.rs` compiles.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use oracle::{Bindings, Program};

#[path = "tests/oracle/mod.rs"]
mod oracle;

/// Why the check did not run.
type NotRun = String;

/// The compiler's result.
enum Verdict {
    /// Every assertion holds; the counts.
    Passed(String),
    /// Some assertions do not hold; the compiler's errors.
    Failed(String),
}

fn main() {
    for file in ["build.rs", "wrapper.h", "cuda-sys/wrapper.h", "tests/oracle"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let report = match ask() {
        Ok(Verdict::Passed(counts)) => {
            println!("cargo::rustc-cfg=abi_oracle");
            format!("passed\n{counts}")
        }
        Ok(Verdict::Failed(complaints)) => {
            println!("cargo::rustc-cfg=abi_oracle");
            format!("failed\n{complaints}")
        }
        Err(why) => format!("not run\n{why}\n"),
    };
    write("abi_report.txt", &report);
    let (verdict, details) = match ask_nccl() {
        Ok(assertions) => ("passed", assertions.to_string()),
        Err(Ok(complaints)) => ("failed", complaints),
        Err(Err(why)) => ("not run", why),
    };
    if verdict != "not run" {
        println!("cargo::rustc-cfg=nccl_oracle");
    }
    write("nccl_report.txt", &format!("{verdict}\n{details}"));
    for (page, name) in
        [("README.md", "readme"), ("docs/cookbook.md", "cookbook"), ("docs/traces.md", "traces")]
    {
        println!("cargo::rerun-if-changed={page}");
        let examples = examples(page);
        println!("cargo::rustc-env={name}_examples={}", examples.len());
        for (number, example) in (1..).zip(examples) {
            write(&format!("{name}_{number}.rs"), &example);
        }
    }
}

/// The variable that names the folder of `nccl.h`, such as `nvidia/nccl/include` of the wheel
/// `nvidia-nccl-cu13`. `cargo xtask headers` fetches it.
const NCCL_INCLUDE: &str = "CUDA_TESTS_NCCL_INCLUDE";

/// Where `nccl.h` is installed by a package of the system.
const SYSTEM_INCLUDE: &str = "/usr/include";

const NCCL_TYPES: &str = "cuda-core/src/nccl/raw.rs";

const NCCL_FUNCTIONS: &str = "cuda-core/src/nccl/library.rs";

/// The number of assertions about NCCL that hold; or those that do not, or why none was made.
fn ask_nccl() -> Result<usize, Result<String, NotRun>> {
    println!("cargo::rerun-if-env-changed={NCCL_INCLUDE}");
    println!("cargo::rerun-if-changed={NCCL_TYPES}");
    println!("cargo::rerun-if-changed={NCCL_FUNCTIONS}");
    let include = env::var(NCCL_INCLUDE).unwrap_or_else(|_| SYSTEM_INCLUDE.to_owned());
    let header = Path::new(&include).join("nccl.h");
    if !header.exists() {
        return Err(Err(format!("no nccl.h in {include}; {NCCL_INCLUDE} names its folder")));
    }
    // Cargo takes a missing file for a changed one, and would build the package each time.
    println!("cargo::rerun-if-changed={}", header.display());
    let read = |file| fs::read_to_string(file).map_err(|error| Err(error.to_string()));
    let (raw, library) = (read(NCCL_TYPES)?, read(NCCL_FUNCTIONS)?);
    let (program, assertions) = oracle::nccl::program(&raw, &library).map_err(Ok)?;
    for (name, text) in oracle::nccl::STUBS {
        write(name, text);
    }
    write("nccl_oracle.c", &program);
    let compiler = Compiler::find(include).map_err(Err)?;
    let mut command = compiler.tool.to_command();
    let folder = &compiler.directory;
    // The stubs come before the headers of a toolkit.
    command.arg("-std=gnu11").arg("-fsyntax-only").arg("-I").arg(folder);
    command.arg("-I").arg(&compiler.include).arg(folder.join("nccl_oracle.c"));
    let output = run(&mut command).map_err(Err)?;
    match output.status.success() {
        true => Ok(assertions),
        false => Err(Ok(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

fn write(name: &str, text: &str) {
    let file = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join(name);
    fs::write(&file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

/// Returns the Rust examples of a page, each as the body of a function that returns a `Result`.
fn examples(page: &str) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{page}: {error}"));
    let blocks = text.split("```rust\n").skip(1);
    blocks
        .map(|rest| {
            let (example, _) = rest.split_once("```").expect("what is opened is closed");
            format!("{{\n{example}Ok(())\n}}\n")
        })
        .collect()
}

fn ask() -> Result<Verdict, NotRun> {
    let of_cuda_sys = |name: &str| env::var(format!("DEP_CUDA_SYS_DRIVER_{name}"));
    let skipped = |_| "cuda-sys' build script was skipped";
    let source = of_cuda_sys("SOURCE").map_err(skipped)?;
    let bound = of_cuda_sys("VERSION").map_err(skipped)?;
    let include = of_cuda_sys("INCLUDE").map_err(|_| "no cuda.h was read")?;
    let version = of_cuda_sys("HEADER_VERSION").map_err(|_| "no cuda.h was read")?;
    let own = of_cuda_sys("HEADER_SOURCE").map_err(|_| "no cuda.h was read")?;
    println!("cargo::rerun-if-changed={include}/cuda.h");
    println!("cargo::rerun-if-changed={source}");

    let header = fs::read_to_string(Path::new(&include).join("cuda.h"))
        .map_err(|error| format!("{include}/cuda.h: {error}"))?;
    let compiler = Compiler::find(include)?;
    let preprocessed = compiler.preprocess()?;
    let declared = oracle::declared(&preprocessed);

    let mut complaints = String::new();
    let mut counts = String::new();
    let bindings = Bindings::read(Path::new(&source), &header)?;
    let checked = if version == bound {
        bindings
    } else {
        let own = Bindings::read(Path::new(&own), &header)?;
        for difference in bindings.differences(&own) {
            counts.push_str(&format!("difference {difference}\n"));
        }
        own
    };
    let (lost, exceptions) = checked.lacking(&preprocessed);
    for name in lost {
        complaints.push_str(&format!("{name} is declared but not bound\n"));
    }
    for exception in exceptions {
        counts.push_str(&format!("exception {exception}\n"));
    }
    counts.push_str(&format!("symbols {}\n", checked.symbols()));
    for program in checked.programs(&declared) {
        let output = compiler.check(&program)?;
        if !output.status.success() {
            complaints.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        // A control: a compiler that accepts a false assertion would prove nothing.
        let spoiled = compiler.check(&program.spoiled())?;
        if spoiled.status.success() {
            complaints.push_str("the compiler accepts a false assertion\n");
        }
        for (kind, count) in program.counts() {
            counts.push_str(&format!("{kind} {count}\n"));
        }
    }
    Ok(if complaints.is_empty() { Verdict::Passed(counts) } else { Verdict::Failed(complaints) })
}

/// A C compiler that knows GNU C: the assertions on types need it.
struct Compiler {
    tool: cc::Tool,
    include: String,
    directory: PathBuf,
}

impl Compiler {
    fn find(include: String) -> Result<Self, NotRun> {
        let tool = cc::Build::new()
            .cargo_metadata(false)
            .try_get_compiler()
            .map_err(|error| format!("no C compiler: {error}"))?;
        if tool.is_like_msvc() {
            return Err("the assertions are GNU C; this compiler is Microsoft's".to_owned());
        }
        let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        Ok(Self { tool, include, directory })
    }

    fn command(&self) -> Command {
        let mut command = self.tool.to_command();
        let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
        command.arg("-std=gnu11").arg("-I").arg(package).arg("-I").arg(&self.include);
        command
    }

    /// The header after preprocessing, as a program sees it.
    fn preprocess(&self) -> Result<String, NotRun> {
        let output = run(self.command().args(["-E", "-P", "wrapper.h"]))?;
        if !output.status.success() {
            return Err(format!("the compiler cannot read cuda.h: {output:?}"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn check(&self, program: &Program) -> Result<Output, NotRun> {
        let file = self.directory.join("oracle.c");
        fs::write(&file, program.text()).map_err(|e| format!("{}: {e}", file.display()))?;
        run(self.command().arg("-fsyntax-only").arg(&file))
    }
}

fn run(command: &mut Command) -> Result<Output, NotRun> {
    command.output().map_err(|error| format!("{command:?}: {error}"))
}
