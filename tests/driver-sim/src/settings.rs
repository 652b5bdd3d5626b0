//! Reads the configuration from the environment.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::{BuildHasher, Hasher, RandomState};

use cuda_sys::{CUDA_SUCCESS, CUresult};

use crate::config::{Config, MOST_DEVICES, MOST_MEMORY, Mode};
use crate::entry;
use crate::fault::Fault;

impl Config {
    /// Returns the configuration that the environment sets. Variables that are unset or empty leave the
    /// default, except that an empty `CUDA_VISIBLE_DEVICES` leaves no device. See the crate's documentation
    /// for the variables.
    ///
    /// For an invalid setting, the simulator prints on stderr what is wrong with it, and `cuInit` returns
    /// `CUDA_ERROR_INVALID_VALUE`.
    #[must_use]
    pub fn from_env() -> Self {
        // A value that is not Unicode is refused as well.
        Self::from_variables(|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))
    }

    /// Like [`from_env`](Self::from_env), with other variables: for tests, whose process has one environment.
    #[doc(hidden)]
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Self::default();
        let mut settings = Settings { variable, refused: Vec::new() };
        if let Some(devices) = settings.get("CUDA_SIM_DEVICES", parse_devices) {
            config.devices = devices;
        }
        if let Some(mode) = settings.get("CUDA_SIM_MODE", parse_mode) {
            config.mode = mode;
        }
        let threaded = matches!(config.mode, Mode::Threaded { .. });
        if let Some(seed) = settings.get("CUDA_SIM_SEED", |seed| parse_seed(seed, threaded)) {
            config.mode = Mode::Threaded { seed };
        }
        if let Some(bytes) = settings.get("CUDA_SIM_MEMORY", parse_memory) {
            config.memory = bytes;
        }
        if let Some(origins) = settings.get("CUDA_SIM_ORIGINS", parse_switch) {
            config.origins = origins;
        }
        config.faults = settings.list("CUDA_SIM_FAULT", parse_fault);
        config.missing = settings.list("CUDA_SIM_MISSING", |symbol| Ok(symbol.to_owned()));
        // CUDA's own variable, by CUDA's own rule: empty means no device.
        if let Some(list) = (settings.variable)("CUDA_VISIBLE_DEVICES") {
            match visible(&list, config.devices) {
                Some(devices) => config.devices = devices,
                None => config.seen_twice = true,
            }
        }
        config.refused = settings.refused;
        config
    }

    /// Returns what is wrong with the variables, one text for each invalid setting.
    #[doc(hidden)]
    #[must_use]
    pub fn refused(&self) -> &[String] {
        &self.refused
    }
}

/// The variables being read, and errors found so far.
struct Settings<V> {
    variable: V,
    refused: Vec<String>,
}

impl<V: Fn(&str) -> Option<String>> Settings<V> {
    fn text(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn get<T>(&mut self, name: &str, parse: impl Fn(&str) -> Parsed<T>) -> Option<T> {
        let text = self.text(name)?;
        self.parsed(name, &text, parse)
    }

    fn list<T>(&mut self, name: &str, parse: impl Fn(&str) -> Parsed<T>) -> Vec<T> {
        let text = self.text(name).unwrap_or_default();
        let items = text.split(',').map(str::trim);
        items
            .filter(|item| !item.is_empty())
            .filter_map(|item| self.parsed(name, item, &parse))
            .collect()
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        text: &str,
        parse: impl Fn(&str) -> Parsed<T>,
    ) -> Option<T> {
        let parsed = parse(text);
        parsed.map_err(|why| self.refused.push(format!("{name}={text}: {why}"))).ok()
    }
}

/// A setting, or a description of the expected form.
type Parsed<T> = Result<T, String>;

fn expected<T>(what: impl Display) -> Parsed<T> {
    Err(format!("expected {what}"))
}

fn parse_devices(text: &str) -> Parsed<u32> {
    match text.parse() {
        Ok(devices) if devices <= MOST_DEVICES => Ok(devices),
        _ => expected(format_args!("a number from 0 to {MOST_DEVICES}")),
    }
}

fn parse_switch(text: &str) -> Parsed<bool> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => expected("0 or 1"),
    }
}

fn parse_mode(text: &str) -> Parsed<Mode> {
    match text {
        "lazy" => Ok(Mode::Lazy),
        "eager" => Ok(Mode::Eager),
        // A different schedule each time; reports name its seed.
        "threaded" => Ok(Mode::Threaded { seed: RandomState::new().build_hasher().finish() >> 32 }),
        _ => expected("lazy, eager or threaded"),
    }
}

fn parse_seed(text: &str, threaded: bool) -> Parsed<u64> {
    match text.parse() {
        Ok(seed) if threaded => Ok(seed),
        Ok(_) => expected("CUDA_SIM_MODE=threaded beside it"),
        Err(_) => expected("a number"),
    }
}

fn parse_memory(text: &str) -> Parsed<usize> {
    match parse_bytes(text) {
        Some(bytes) if bytes <= MOST_MEMORY => Ok(bytes),
        _ => expected("bytes, such as 64MiB or 2GiB, at most 512GiB"),
    }
}

/// `123`, `64MiB`, `2GiB`.
fn parse_bytes(text: &str) -> Option<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim() {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Parses a fault. `cuMemAllocAsync:3:2`: the third call returns code 2. `*` stands for any function, a `+`
/// after the number for "from then on", `:done` for a call that takes effect nevertheless.
fn parse_fault(text: &str) -> Parsed<Fault> {
    const FORM: &str = "FUNCTION:NTH:CODE, such as cuMemAllocAsync:3:2, with or without :done";
    let parts: Vec<&str> = text.split(':').collect();
    let (function, nth, code, takes_effect) = match parts[..] {
        [function, nth, code] => (function, nth, code, false),
        [function, nth, code, "done"] => (function, nth, code, true),
        _ => return expected(FORM),
    };
    let code = match code.parse() {
        Ok(code) if CUresult(code) != CUDA_SUCCESS => CUresult(code),
        _ => return expected("the number of an error as the CODE"),
    };
    let (first, repeats) = match nth.strip_suffix('+') {
        Some(first) => (first, true),
        None => (nth, false),
    };
    let mut fault = match first.parse() {
        Ok(nth) if nth > 0 => Fault::new(code).nth(nth),
        _ => return expected("a number from 1 on as NTH, with or without a +"),
    };
    if repeats {
        fault = fault.from_then_on();
    }
    if takes_effect {
        fault = fault.takes_effect();
    }
    if function == "*" {
        return Ok(fault);
    }
    if !entry::exists(function) {
        return expected("the exact symbol of a driver function, such as cuMemAlloc_v2, or *");
    }
    Ok(fault.function(function))
}

/// Counts visible devices as CUDA does: ordinals up to the first invalid one; `None` if one of them occurs
/// twice.
fn visible(list: &str, devices: u32) -> Option<u32> {
    let mut named = list
        .split(',')
        .map_while(|entry| entry.trim().parse::<u32>().ok().filter(|&n| n < devices));
    let mut seen = BTreeSet::new();
    let differ = named.all(|ordinal| seen.insert(ordinal));
    differ.then_some(seen.len() as u32)
}
