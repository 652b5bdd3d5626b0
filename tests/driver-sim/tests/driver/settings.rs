//! How variables of the environment configure the driver.

use std::fmt::Debug;

use cuda_sim::{Config, Fault, Mode};
use cuda_sys::*;

fn read(variables: &[(&str, &str)]) -> Config {
    Config::from_variables(|name| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// Asserts that a configuration has these settings, by the names and the form in which it prints them.
#[track_caller]
fn assert_has(config: &Config, settings: &[(&str, &dyn Debug)]) {
    let printed = format!("{config:?}");
    for (name, value) in settings {
        let found =
            [",", " }"].iter().any(|end| printed.contains(&format!(" {name}: {value:?}{end}")));
        assert!(found, "{name}: {value:?} in {printed}");
    }
}

#[test]
fn right_settings_are_taken() {
    let config = read(&[
        ("CUDA_SIM_DEVICES", "7"),
        ("CUDA_SIM_MODE", "eager"),
        ("CUDA_SIM_MEMORY", "2GiB"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:3:2, *:1+:700:done"),
        ("CUDA_SIM_MISSING", "cuMemcpyBatchAsync_v2,cuMemAllocAsync"),
        ("CUDA_VISIBLE_DEVICES", "6,0"),
    ]);
    assert_eq!(config.refused(), [""; 0]);
    let third = Fault::new(CUresult(2)).nth(3).function("cuMemAllocAsync");
    let all = Fault::new(CUresult(700)).from_then_on().takes_effect();
    assert_has(
        &config,
        &[
            ("devices", &2),
            ("mode", &Mode::Eager),
            ("memory", &(2_usize << 30)),
            ("faults", &[third, all]),
            ("missing", &["cuMemcpyBatchAsync_v2", "cuMemAllocAsync"]),
        ],
    );
}

#[test]
fn a_schedule_by_its_seed_or_any() {
    let threaded = ("CUDA_SIM_MODE", "threaded");
    let config = read(&[threaded, ("CUDA_SIM_SEED", "7")]);
    let mode = Mode::Threaded { seed: 7 };
    assert_has(&config, &[("mode", &mode)]);
    assert_eq!(mode.to_string(), "CUDA_SIM_MODE=threaded CUDA_SIM_SEED=7");
    let config = read(&[threaded]);
    assert!(format!("{config:?}").contains(" mode: Threaded { seed: "), "{config:?}");
    assert_eq!(config.refused(), [""; 0]);
}

#[test]
fn empty_is_unset() {
    let config = read(&[("CUDA_SIM_DEVICES", ""), ("CUDA_SIM_FAULT", "")]);
    assert_eq!(config.refused(), [""; 0]);
    assert_has(&config, &[("devices", &4), ("faults", &[(); 0])]);
}

#[test]
fn wrong_settings_are_refused() {
    for (name, value) in [
        ("CUDA_SIM_DEVICES", "two"),
        ("CUDA_SIM_DEVICES", "-1"),
        ("CUDA_SIM_DEVICES", "65"),
        ("CUDA_SIM_MODE", "Eager"),
        ("CUDA_SIM_SEED", "7"),
        ("CUDA_SIM_MEMORY", "3 parsecs"),
        ("CUDA_SIM_MEMORY", "GiB"),
        ("CUDA_SIM_MEMORY", "513GiB"),
        ("CUDA_SIM_MEMORY", "99999999999GiB"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:2"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:1:2:3"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:1:done"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:x:2"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:0:2"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:1++:2"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:1:OUT_OF_MEMORY"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:1:0"),
        ("CUDA_SIM_FAULT", "cuMemAlloc:1:2"),
    ] {
        let config = read(&[(name, value)]);
        let refused = config.refused();
        assert_eq!(refused.len(), 1, "{name}={value}: {refused:?}");
        let said = format!("{name}={value}: expected ");
        assert!(refused[0].starts_with(&said), "{refused:?}");
    }
}

#[test]
fn every_wrong_setting_is_named() {
    let config = read(&[
        ("CUDA_SIM_MODE", "late"),
        ("CUDA_SIM_FAULT", "cuMemAllocAsync:1:2,nothing:1:2,*:2"),
    ]);
    let refused = config.refused().iter();
    let names: Vec<_> = refused.filter_map(|it| Some(it.split_once(": ")?.0)).collect();
    let wrong = ["CUDA_SIM_MODE=late", "CUDA_SIM_FAULT=nothing:1:2", "CUDA_SIM_FAULT=*:2"];
    assert_eq!(names, wrong);
    let right = Fault::new(CUresult(2)).function("cuMemAllocAsync");
    assert_has(&config, &[("faults", &[right])]);
}

/// The expected answers are those of an H200 with driver 580.
#[test]
fn visible_devices() {
    let visible = |list| read(&[("CUDA_VISIBLE_DEVICES", list)]);
    for none in ["", " ", "-1", "9", "x", ",0"] {
        assert_has(&visible(none), &[("devices", &0), ("seen_twice", &false)]);
    }
    for one in ["0,", " 0", "0,9,1"] {
        assert_has(&visible(one), &[("devices", &1), ("seen_twice", &false)]);
    }
    assert_has(&visible("2,0"), &[("devices", &2), ("seen_twice", &false)]);
    assert_has(&visible("0,2,0"), &[("seen_twice", &true)]);
    assert_has(&visible("0,0"), &[("seen_twice", &true)]);
}
