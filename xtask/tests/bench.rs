//! Runs `cargo xtask bench` as users do: on the simulated driver, and on files of earlier runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use serde_json::{Value, json};

/// The files of a test; removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = env::temp_dir().join(format!("cuda-xtask-{test}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Leftover files are harmless.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).arg("bench").args(words).output().unwrap()
}

#[track_caller]
fn ends(words: &[&str], code: i32) -> String {
    let output = bench(words);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{printed}\n{said}");
    printed + &said
}

/// Returns the file of an earlier run in which an upload took this many nanoseconds, and the raw calls 1000.
fn results(ours: f64) -> Value {
    json!({
        "format": 1,
        "version": "0.1.0",
        "driver": "1 × GPU",
        "simulated": false,
        "batches": 1001,
        "peers": [{ "name": "CuPy", "absent": "not there" }],
        "rows": [{
            "group": "enqueues",
            "name": "upload",
            "goal": { "beside": { "calls": 1 } },
            "finding": { "measured": {
                "unit": "ns", "ours": ours, "raw": 1000.0, "ratio": ours / 1000.0
            } },
        }],
    })
}

fn written(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_operation_works_on_the_simulated_driver() {
    let folder = Folder::new("all");
    let (json, svg, markdown) = (folder.file("r.json"), folder.file("r.svg"), folder.file("r.md"));
    let words = ["--sim", "8", "--json", &json, "--svg", &svg, "--markdown", &markdown];
    let said = ends(&words, 0);
    let report = written(&json);
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() > 20, "{said}");
    // The simulated NCCL supports only the ranks of one process.
    let here = |row: &&Value| !row["name"].as_str().unwrap().ends_with("2 processes");
    assert_eq!(rows.iter().filter(here).count(), rows.len() - 1, "{said}");
    for row in rows.iter().filter(here) {
        assert!(row["finding"]["measured"]["ours"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["verdict"], "no_goal", "{row}");
    }
    let picture = fs::read_to_string(&svg).unwrap();
    assert!(picture.contains("SIMULATED") && picture.contains("link limit"));
    let markdown = fs::read_to_string(&markdown).unwrap();
    let (all, many) = markdown.split_once("\n\n").unwrap();
    assert_eq!(all.lines().count(), rows.len() + 2);
    assert!(many.starts_with("| many devices at once |"), "{many}");
    assert!(markdown.contains("a simulated driver"), "{markdown}");
    // Simulated results cannot be checked.
    ends(&["--check", &json], 2);
    ends(&["--sim", "1", "--only", "event record", "--check"], 2);
}

#[test]
fn many_devices_stand_beside_each_alone_and_beside_their_links() {
    let folder = Folder::new("many");
    let path = folder.file("r.json");
    ends(&["--sim", "4", "--only", "4 devices", "--json", &path], 0);
    let report = written(&path);
    let many = |what: &str| {
        let name = format!("{what}, 4 devices");
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == *name).unwrap();
        row["finding"]["measured"]["many"].clone()
    };
    for (what, singles, links) in [
        ("upload to all, borrowed slice", true, false),
        ("scatter, pinned", true, false),
        ("gather, pinned", true, false),
        ("ring of peer copies", true, true),
        ("all-to-all of peer copies", true, true),
        // Only one device sends.
        ("broadcast from one device", false, true),
    ] {
        let many = many(what);
        assert_eq!(many["devices"], 4, "{what}: {many}");
        assert_eq!(many["singles"].as_f64() > Some(0.0), singles, "{what}: {many}");
        let limit = many["links"]["limit"].as_f64();
        assert_eq!(limit > Some(0.0), links, "{what}: {many}");
        if let (Some(limit), Some(one)) = (limit, many["links"]["one_way"].as_f64()) {
            let senders = if singles { 4.0 } else { 1.0 };
            // The last digit of a number in the file may differ.
            assert!((limit / one - senders).abs() < 1e-9, "{what}: {many}");
        }
    }
}

#[test]
fn a_missed_goal_of_an_earlier_run_is_exit_code_1() {
    let folder = Folder::new("check");
    for (ours, code) in [(1030.0, 0), (1031.0, 1)] {
        let path = folder.file("r.json");
        fs::write(&path, results(ours).to_string()).unwrap();
        let svg = folder.file("r.svg");
        let said = ends(&["--check", &path, "--svg", &svg], code);
        assert_eq!(said.contains("MISSED"), code == 1, "{said}");
        assert!(Path::new(&svg).exists());
    }
}

#[test]
fn what_cannot_run_is_exit_code_2() {
    let folder = Folder::new("refused");
    let path = folder.file("r.json");
    fs::write(&path, results(1.0).to_string()).unwrap();
    for words in [
        &["--check", &folder.file("none.json")][..],
        &["--check", &path, "--quick"],
        &["--check", &path, "--only", "nothing of that name"],
        &["--list", "--only", "nothing of that name"],
        &["--sim", "1", "--device", "1"],
    ] {
        let said = ends(words, 2);
        assert!(said.contains("error: "), "{said}");
    }
}

#[test]
fn fewer_devices_are_reported_not_passed_over() {
    let folder = Folder::new("fewer");
    let path = folder.file("r.json");
    let said = ends(&["--sim", "1", "--only", "peer copies", "--json", &path], 0);
    assert!(said.contains("needs 2 devices, here: 1"), "{said}");
    let rows = written(&path)["rows"].as_array().unwrap().clone();
    assert!(rows.iter().all(|row| row["verdict"] == "not_run"), "{said}");
}
