//! The search for `cuda.h`, in temporary directories; see `build/toolkit.rs`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;

use choice::{Mode, Plan};
use machine::Machine;
use toolkit::{Search, Source, Toolkit, Verdict};

#[path = "../build/choice.rs"]
mod choice;
#[path = "toolkit/machine.rs"]
mod machine;
#[path = "../build/toolkit.rs"]
mod toolkit;

const LINUX: &str = "x86_64-unknown-linux-gnu";
const ARM: &str = "aarch64-unknown-linux-gnu";

fn at(include: &str, version: u32) -> Option<(String, u32)> {
    Some((include.to_owned(), version))
}

#[test]
fn an_empty_machine_has_none_and_arouses_no_suspicion() {
    let machine = Machine::new().file("usr/include/stdio.h", "");
    assert_eq!(machine.found(), None);
    assert_eq!(machine.plan(Mode::Auto), Ok(Plan::Bundled { warning: None }));
}

#[test]
fn the_order_is_as_documented() {
    let mut machine = Machine::new();
    let mut expected = Vec::new();
    // From the last place to the first: each one takes precedence over those before it in this list.
    for (i, (variable, root, include)) in [
        (None, "usr", "usr/include"),
        (None, "opt/cuda", "opt/cuda/include"),
        (None, "usr/local/cuda", "usr/local/cuda/include"),
        (Some("CONDA_PREFIX"), "conda", "conda/include"),
        (Some("PATH"), "sdk", "sdk/include"),
        (Some("CUDA_TOOLKIT_ROOT_DIR"), "e", "e/include"),
        (Some("CUDA_ROOT"), "d", "d/include"),
        (Some("CUDA_PATH"), "c", "c/include"),
        (Some("CUDA_HOME"), "b", "b/include"),
        (Some("X86_64_UNKNOWN_LINUX_GNU_CUDA_HOME"), "bt", "bt/include"),
        (Some("CUDA_SYS_INCLUDE_DIR"), "a", "a"),
        (Some("X86_64_UNKNOWN_LINUX_GNU_CUDA_SYS_INCLUDE_DIR"), "at", "at"),
    ]
    .into_iter()
    .enumerate()
    {
        let version = 12_000 + 10 * i as u32;
        machine = machine.header(include, version);
        machine = match variable {
            Some("PATH") => machine.file("sdk/bin/nvcc", "").var("PATH", "sdk/bin"),
            Some(name) => machine.var(name, root),
            None => machine,
        };
        expected.push(at(include, version));
        assert_eq!(&machine.found(), expected.last().expect("just pushed"), "{variable:?}");
    }
}

#[test]
fn only_what_is_asked_on_the_way_is_watched() {
    let asked = |machine: &Machine| {
        let asked = RefCell::new(Vec::new());
        let env = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            machine.env.get(name).cloned()
        };
        let search =
            Search { env: &env, machine: &machine.root, host: LINUX, target: machine.target };
        search.run();
        asked.into_inner()
    };
    let machine = Machine::new().header("b/include", 12_040);
    let everywhere = asked(&machine);
    assert!(
        everywhere.contains(&"PATH".to_owned()) && everywhere.contains(&"CUDA_ROOT".to_owned())
    );
    assert!(everywhere.contains(&"CONDA_PREFIX".to_owned()));

    let machine = machine.var("CUDA_PATH", "b");
    let named = asked(&machine);
    let last = named.last().expect("variables");
    assert_eq!(last, "CUDA_PATH", "{named:?}");

    let machine = machine.var("CUDA_SYS_INCLUDE_DIR", "b/include");
    let pointed = asked(&machine);
    assert!(pointed.iter().all(|name| name.ends_with("CUDA_SYS_INCLUDE_DIR")), "{pointed:?}");
}

#[test]
fn where_no_header_would_be_read_none_is_looked_for() {
    for mode in [Mode::Auto, Mode::System, Mode::Bundled] {
        assert_eq!(mode.searches(true), mode != Mode::Bundled);
        assert!(!mode.searches(false));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_not_utf_8_is_said_to_be_one() {
    use std::os::unix::ffi::OsStringExt;

    let mut machine = Machine::new();
    let place = machine.root.join(OsString::from_vec(b"caf\xe9".to_vec()));
    fs::create_dir_all(&place).expect("a directory");
    fs::write(place.join("cuda.h"), "#define CUDA_VERSION 12040\n").expect("a header");
    machine.env.insert("CUDA_SYS_INCLUDE_DIR".to_owned(), place.into());
    let error = machine.plan(Mode::System).expect_err("cannot be passed on");
    assert!(error.contains("name is not UTF-8"), "{error}");
    let Ok(Plan::Bundled { warning: Some(warning) }) = machine.plan(Mode::Auto) else {
        panic!("a header that is not read must cause a warning");
    };
    assert!(warning.contains("not UTF-8"), "{warning}");
}

#[test]
fn the_directory_itself_is_that_one_or_none() {
    let machine = Machine::new()
        .header("usr/local/cuda/include", 12_040)
        .var("CUDA_SYS_INCLUDE_DIR", "nowhere");
    assert_eq!(machine.found(), None);
    let Ok(Plan::Bundled { warning: Some(warning) }) = machine.plan(Mode::Auto) else {
        panic!("a wrong variable must cause a warning");
    };
    assert!(warning.contains("CUDA_SYS_INCLUDE_DIR=") && warning.contains("no such directory"));
}

#[test]
fn other_files_bear_the_name() {
    let machine = Machine::new()
        .file("usr/include/cuda.h", "#define BOOST_PREDEF_LANGUAGE_CUDA_H\n")
        .header("usr/local/cuda/include", 12_040);
    assert_eq!(machine.found(), at("usr/local/cuda/include", 12_040));

    let machine = Machine::new().file("b/include/cuda.h", "int x;\n").var("CUDA_HOME", "b");
    assert_eq!(machine.found(), None);
    assert_eq!(machine.search().tried[0].verdict, Verdict::NotNvidia);
}

#[test]
fn pip_conda_and_debian_have_their_own_layouts() {
    let pip13 = Machine::new()
        .header("site-packages/nvidia/cu13/include", 13_000)
        .header("site-packages/nvidia/cu14/include", 14_000)
        .header("site-packages/nvidia/cuda_runtime/include", 12_040)
        .var("CUDA_HOME", "site-packages");
    assert_eq!(pip13.found(), at("site-packages/nvidia/cu14/include", 14_000));
    let toolkit = pip13.search().toolkit.expect("found");
    assert_eq!(pip13.relative(&toolkit.root), "site-packages/nvidia/cu14");

    let pip12 = Machine::new()
        .header("site-packages/nvidia/cuda_runtime/include", 12_040)
        .var("CUDA_HOME", "site-packages");
    assert_eq!(pip12.found(), at("site-packages/nvidia/cuda_runtime/include", 12_040));

    let one_wheel = Machine::new()
        .header("site-packages/nvidia/cu13/include", 13_000)
        .var("CUDA_HOME", "site-packages/nvidia/cu13");
    assert_eq!(one_wheel.found(), at("site-packages/nvidia/cu13/include", 13_000));

    let conda = Machine::new()
        .header("conda/targets/x86_64-linux/include", 12_090)
        .var("CONDA_PREFIX", "conda");
    assert_eq!(conda.found(), at("conda/targets/x86_64-linux/include", 12_090));

    let debian = Machine::new()
        .header("usr/include", 11_080)
        .file("usr/bin/nvcc", "")
        .var("PATH", "usr/bin");
    assert_eq!(debian.found(), at("usr/include", 11_080));
}

#[cfg(unix)]
#[test]
fn nvcc_may_be_a_link_into_the_toolkit() {
    let machine = Machine::new()
        .header("sdk/12.9/include", 12_090)
        .file("sdk/12.9/bin/nvcc", "")
        .file("home/bin/other", "")
        .var("PATH", "home/bin");
    let (real, link) = (machine.root.join("sdk/12.9/bin/nvcc"), machine.root.join("home/bin/nvcc"));
    std::os::unix::fs::symlink(real, link).expect("a link");
    let toolkit = machine.search().toolkit.expect("found");
    assert_eq!(toolkit.version, 12_090);
}

#[test]
fn a_compiler_cache_may_hide_the_toolkits_nvcc() {
    let machine = Machine::new()
        .file("cache/bin/nvcc", "")
        .header("sdk/12.9/include", 12_090)
        .file("sdk/12.9/bin/nvcc", "");
    let folders = ["cache/bin", "sdk/12.9/bin"].map(|folder| machine.root.join(folder));
    let path = std::env::join_paths(folders).expect("no separator in them");
    let machine = machine.var("PATH", path.to_str().expect("UTF-8"));
    assert_eq!(machine.found(), at("sdk/12.9/include", 12_090));
}

#[test]
fn wheels_are_the_hosts() {
    let machine = Machine::new()
        .header("site-packages/nvidia/cu13/include", 13_000)
        .var("CUDA_HOME", "site-packages");
    assert!(machine.found().is_some());
    assert_eq!(machine.target(ARM).found(), None);
}

#[test]
fn a_foreign_target_takes_its_own_headers_only() {
    let host_only = Machine::new()
        .header("usr/local/cuda/include", 12_040)
        .header("usr/local/cuda/targets/x86_64-linux/include", 12_040)
        .header("usr/include", 12_040)
        .var("CUDA_HOME", "usr/local/cuda")
        .target(ARM);
    assert_eq!(host_only.found(), None);
    assert_eq!(
        host_only.plan(Mode::Auto),
        Ok(Plan::Bundled { warning: None }),
        "cross-compiling without the target's toolkit must not cause a warning"
    );

    let server = Machine::new()
        .header("usr/local/cuda/include", 12_040)
        .header("usr/local/cuda/targets/sbsa-linux/include", 12_060)
        .target(ARM);
    assert_eq!(server.found(), at("usr/local/cuda/targets/sbsa-linux/include", 12_060));

    let jetson =
        Machine::new().header("usr/local/cuda/targets/aarch64-linux/include", 12_060).target(ARM);
    assert_eq!(jetson.found(), at("usr/local/cuda/targets/aarch64-linux/include", 12_060));

    for name in ["CUDA_HOME", "CONDA_PREFIX"] {
        let own_variable = Machine::new()
            .header("arm/include", 12_080)
            .var(&format!("AARCH64_UNKNOWN_LINUX_GNU_{name}"), "arm")
            .target(ARM);
        assert_eq!(own_variable.found(), at("arm/include", 12_080), "{name}");
    }

    let other_libc =
        Machine::new().header("usr/local/cuda/include", 12_040).target("x86_64-unknown-linux-musl");
    assert_eq!(other_libc.found(), at("usr/local/cuda/include", 12_040));
}

#[test]
fn an_older_header_than_the_floor_is_not_used() {
    let machine = Machine::new().header("usr/local/cuda/include", 11_070);
    let Ok(Plan::Bundled { warning: Some(warning) }) = machine.plan(Mode::Auto) else {
        panic!("an old header must cause a warning");
    };
    assert!(warning.contains("is of CUDA 11.7; cuda-sys needs 11.8"), "{warning}");
    let error = machine.plan(Mode::System).expect_err("required, and not usable");
    assert!(error.contains("is of CUDA 11.7"), "{error}");

    let machine = Machine::new().header("usr/local/cuda/include", 11_080);
    assert!(matches!(machine.plan(Mode::Auto), Ok(Plan::Generate(_))));
}

#[test]
fn a_toolkit_without_the_header_is_worth_one_warning() {
    for machine in [
        Machine::new().file("usr/local/cuda/lib64/libcudart.so", ""),
        Machine::new().file("b/version.json", "").var("CUDA_HOME", "b"),
        Machine::new().var("CUDA_PATH", "nowhere"),
        Machine::new().file("sdk/bin/nvcc", "").var("PATH", "sdk/bin"),
    ] {
        let plan = machine.plan(Mode::Auto);
        let Ok(Plan::Bundled { warning: Some(warning) }) = plan else {
            panic!("no warning of {:?}", machine.search().tried);
        };
        assert!(!warning.contains('\n'), "{warning}");
    }
    let conda = Machine::new().file("conda/bin/python", "").var("CONDA_PREFIX", "conda");
    assert_eq!(conda.plan(Mode::Auto), Ok(Plan::Bundled { warning: None }));
}

#[test]
fn system_says_what_was_tried_and_what_to_set() {
    let machine = Machine::new().var("CUDA_HOME", "nowhere").file("opt/cuda/README", "");
    let error = machine.plan(Mode::System).expect_err("nothing there");
    for part in [
        "CUDA_HOME=",
        "nowhere: no such directory",
        "usr/local/cuda: no such directory",
        "opt/cuda: no cuda.h",
        "Set CUDA_SYS_INCLUDE_DIR",
    ] {
        assert!(error.contains(part), "`{part}` is not in:\n{error}");
    }
    let sources: Vec<_> = machine.search().tried.into_iter().map(|tried| tried.source).collect();
    assert_eq!(sources[0], Source::Variable("CUDA_HOME".to_owned()));
    assert_eq!(sources[1..], [Source::Customary, Source::Customary, Source::Customary]);
}

#[test]
fn modes_are_read_strictly() {
    let parse = |value: &str| Mode::parse(Some(value.into()));
    assert_eq!(Mode::parse(None), Ok(Mode::Auto));
    assert_eq!(parse(""), Ok(Mode::Auto));
    assert_eq!(parse("auto"), Ok(Mode::Auto));
    assert_eq!(parse("system"), Ok(Mode::System));
    assert_eq!(parse("bundled"), Ok(Mode::Bundled));
    assert!(parse("System").is_err_and(|error| error.contains("`System`")));
}

#[test]
fn without_the_generator_only_system_complains() {
    let machine = Machine::new().header("usr/local/cuda/include", 12_040);
    let found = machine.search();
    assert_eq!(Mode::Auto.plan(&found, false), Ok(Plan::Bundled { warning: None }));
    assert_eq!(Mode::Bundled.plan(&found, true), Ok(Plan::Bundled { warning: None }));
    let error = Mode::System.plan(&found, false).expect_err("cannot generate");
    assert!(error.contains("buildtime-bindgen"), "{error}");
}

#[test]
fn the_linker_is_shown_the_stub() {
    let machine = Machine::new()
        .header("usr/local/cuda/include", 12_040)
        .file("usr/local/cuda/lib64/stubs/libcuda.so", "")
        .file("usr/local/cuda/lib/libother.so", "")
        .file("usr/local/cuda/targets/x86_64-linux/lib/stubs/libcuda.so", "");
    let toolkit: Toolkit = machine.search().toolkit.expect("found");
    let directories = machine.with(|search| search.link_directories(&toolkit));
    let directories: Vec<_> = directories.iter().map(|dir| machine.relative(dir)).collect();
    assert_eq!(
        directories,
        ["usr/local/cuda/targets/x86_64-linux/lib/stubs", "usr/local/cuda/lib64/stubs"]
    );
}

#[test]
fn the_linker_is_shown_no_library_of_the_host() {
    let machine = Machine::new()
        .header("usr/local/cuda/targets/sbsa-linux/include", 12_040)
        .file("usr/local/cuda/lib64/stubs/libcuda.so", "")
        .target(ARM);
    let toolkit: Toolkit = machine.search().toolkit.expect("found");
    assert!(machine.with(|search| search.link_directories(&toolkit)).is_empty());
}

#[test]
fn versions_are_read_and_printed() {
    assert_eq!(toolkit::version("# define CUDA_VERSION   13050 /* x */"), Some(13_050));
    assert_eq!(toolkit::version("#define CUDA_VERSION_X 13050\n#if CUDA_VERSION > 1"), None);
    assert_eq!(toolkit::release(13_050), "13.5");
    assert_eq!(toolkit::release(11_080), "11.8");
}
