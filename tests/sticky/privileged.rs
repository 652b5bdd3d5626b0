//! A process that has more rights than the user who started it loads no library that this user names.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs};

use cuda_core::{nccl, nvrtc, nvtx};
use cuda_sys::os;
use support::{child, report};

/// Libraries that variables name.
const NOWHERE: &str = "/nonexistent/lib";

/// A library of the system that this program does not use: `NVTX_INJECTION64_PATH` names it.
const TOOL: &str = "libanl.so.1";

/// The children are to have more rights than this process, or the same.
const PRIVILEGED: &str = "CUDA_TESTS_PRIVILEGED";

/// Lets the process be started with another group than its user's, as by a set-gid file.
fn privileged(command: &mut Command) {
    let other_group = || {
        // SAFETY: no precondition.
        match unsafe { libc::setegid(65534) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure makes one system call, and takes no lock.
    unsafe { command.pre_exec(other_group) };
}

#[test]
fn m_privileged_programs_ignore_named_libraries() {
    if !child::is_this() {
        let mut trial = Command::new("true");
        privileged(&mut trial);
        let modes = match trial.status() {
            Ok(_) => &["no", "yes"][..],
            Err(error) => {
                report!("no process with more rights than its user's: {error}");
                &["no"]
            }
        };
        let name = concat!(module_path!(), "::m_privileged_programs_ignore_named_libraries");
        for mode in modes {
            let libraries = ["CUDA_SYS_LIBRARY", "CUDA_CORE_NVRTC", "CUDA_CORE_NCCL"];
            let mut environment = libraries.map(|name| (name, Some(NOWHERE))).to_vec();
            environment.extend([("NVTX_INJECTION64_PATH", Some(TOOL)), (PRIVILEGED, Some(mode))]);
            child::run_with(name, &environment, |command| {
                if *mode == "yes" {
                    privileged(command);
                }
            });
        }
        return;
    }
    let is_privileged = env::var(PRIVILEGED).as_deref() == Ok("yes");
    assert_eq!(os::is_privileged(), is_privileged, "as the parent started it");
    let answers = [
        cuda_sys::load().map(drop).map_err(|error| error.to_string()),
        nvrtc::version().map(drop).map_err(|error| error.to_string()),
        nccl::version().map(drop).map_err(|error| error.to_string()),
    ];
    for answer in answers {
        // By its own name, each may be there.
        let tried_the_named = answer.as_ref().is_err_and(|error| error.contains(NOWHERE));
        assert_eq!(tried_the_named, !is_privileged, "{answer:?}");
    }
    nvtx::mark("loads the tool");
    let loaded = fs::read_to_string("/proc/self/maps").expect("this process can read them");
    assert_eq!(loaded.contains("/libanl"), !is_privileged, "the tool");
    child::done();
}
