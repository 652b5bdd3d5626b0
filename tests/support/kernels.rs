//! Small kernels, as PTX for real devices and as closures for the simulated one.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | `nothing` | | nothing |
//! | `take_six` | six addresses | nothing |
//! | `fill_words` | `u32 *x, u32 value, u32 n` | `x[i] = value` |
//! | `add_one` | `u32 *x, u32 n` | `x[i] += 1` |
//! | `copy_words` | `u32 *to, const u32 *from, u32 n` | `to[i] = from[i]` |
//! | `saxpy` | `f32 a, const f32 *x, f32 *y, u32 n` | `y[i] += a * x[i]` |
//! | `stir` | `u32 *x, u32 n, u32 rounds` | `x[i] = x[i] * 1664525 + 1013904223`, `rounds` times |
//! | `increment` | `u32 *x` | adds 1 to `x[0]` in every thread, atomically |
//! | `bump` | `u32 by` | adds to the global `counter` (5 at first) in every thread |
//! | `look_up` | `u32 *to` | `to[i] = table[i]`, the constants 2, 3, 5, 7, in four threads |
//! | `echo` | see the PTX | stores its parameters, eight bytes each, and twelve |
//! | `spin` | `volatile const u32 *flag` | spins until `flag[0]` is not zero |
//! | `store` | `u64 address, u32 value` | stores to any address |
//! | `shared_size` | `u32 *to` | `to[0]` = bytes of dynamic shared memory |

use std::env;
use std::sync::Once;

use cuda_core::jit::{LinkInput, Linker};
use cuda_core::{Context, Function, Module, Result};
use cuda_sim::{Arguments, Memory, Region, Trap, register_kernel};

/// The kernels' text, with the global variable `counter` and the constants `table`.
pub const PTX: &str = include_str!("kernels.ptx");

/// Loads all kernels into a context.
///
/// # Errors
/// The driver's.
pub fn load(context: &Context) -> Result<Module> {
    register();
    Module::from_ptx(context, PTX)
}

/// Loads one of the kernels.
///
/// # Errors
/// The driver's.
pub fn get(context: &Context, name: &str) -> Result<Function> {
    load(context)?.function(name)
}

/// Loads the kernels that set conditions of graphs: `count_down(u32 *x, condition)`, which subtracts 1 from
/// `x[0]`, and `decide(const u32 *x, condition)`. Both set the condition to `x[0]`, and need the tag
/// `cudadevrt`.
///
/// # Errors
/// The driver's.
pub fn conditions(context: &Context) -> Result<Module> {
    /// An archive for the simulated driver, which takes every archive for libcudadevrt.
    const ARCHIVE: &[u8] = b"!<arch>\n";
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_kernel(
            "count_down",
            |a| vec![a.writes::<u32>(0, 1)],
            |a, memory| {
                each(memory, a.address(0), |old| old.wrapping_sub(1))?;
                let left = memory.slice::<u32>(a.address(0))?[0];
                memory.set_condition(a.value(1), left);
                Ok(())
            },
        );
        register_kernel(
            "decide",
            |a| vec![a.reads::<u32>(0, 1)],
            |a, memory| {
                let value = memory.slice::<u32>(a.address(0))?[0];
                memory.set_condition(a.value(1), value);
                Ok(())
            },
        );
    });
    let mut linker = Linker::new(context)?;
    linker.add_ptx(include_str!("conditions.ptx"))?;
    match env::var_os("CUDA_TESTS_LIBCUDADEVRT") {
        // SAFETY: the file is an archive of the toolkit.
        Some(archive) => drop(unsafe { linker.add_file(LinkInput::Library, archive) }?),
        // SAFETY: the simulated driver reads no further than the slice.
        None => drop(unsafe { linker.add_image(LinkInput::Library, ARCHIVE) }?),
    }
    Module::from_cubin(context, &linker.complete()?)
}

/// Registers the kernels' closures with the simulated driver; [`load`] does it too.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_kernel("nothing", |_| Vec::new(), |_, _| Ok(()));
        let six =
            |arguments: &Arguments| (0..6).map(|index| arguments.reads::<u8>(index, 1)).collect();
        register_kernel("take_six", six, |_, _| Ok(()));
        register_words();
        register_scalars();
        register_waits();
    });
}

/// Returns how many of `n` elements have a thread.
fn covered(launch: &Arguments, n: u32) -> u64 {
    u64::from(n).min(launch.threads())
}

fn register_words() {
    cuda_sim::kernels! {
        fn fill_words(x: &mut [u32; covered(launch, n)], value: u32, n: u32) in launch {
            x.fill(value);
        }
        fn add_one(x: &mut [u32; covered(launch, n)], n: u32) in launch {
            x.iter_mut().for_each(|word| *word = word.wrapping_add(1));
        }
        fn copy_words(to: &mut [u32; covered(launch, n)], from: &[u32; covered(launch, n)], n: u32) in launch {
            to.copy_from_slice(from);
        }
        fn saxpy(a: f32, x: &[f32; covered(launch, n)], y: &mut [f32; covered(launch, n)], n: u32) in launch {
            y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
        }
        fn stir(x: &mut [u32; covered(launch, n)], n: u32, rounds: u32) in launch {
            x.iter_mut().for_each(|word| *word = stirred(*word, rounds));
        }
    }
}

/// Replaces each word of a declared region by `f` of it.
fn each(memory: &mut Memory<'_>, address: u64, f: impl Fn(u32) -> u32) -> Result<(), Trap> {
    memory.slice_mut(address, |words| words.iter_mut().for_each(|word| *word = f(*word)))
}

/// Returns the value that `stir` computes from a word.
#[must_use]
pub fn stirred(word: u32, rounds: u32) -> u32 {
    (0..rounds).fold(word, |word, _| word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
}

fn register_scalars() {
    register_kernel(
        "increment",
        |a| vec![a.writes::<u32>(0, 1)],
        |a, memory| each(memory, a.address(0), |old| old.wrapping_add(a.threads() as u32)),
    );
    register_kernel(
        "bump",
        |a| vec![Region::write(a.global("counter"), 4)],
        |a, memory| {
            let by = a.value::<u32>(0).wrapping_mul(a.threads() as u32);
            each(memory, a.global("counter"), |old| old.wrapping_add(by))
        },
    );
    register_kernel(
        "look_up",
        |a| vec![a.writes::<u32>(0, 4), Region::read(a.global("table"), 16)],
        |a, memory| {
            let table = memory.slice::<u32>(a.global("table"))?;
            memory.slice_mut(a.address(0), |to| to.copy_from_slice(&table))
        },
    );
    register_kernel(
        "echo",
        |a| vec![a.writes::<u8>(0, 60)],
        |a, memory| {
            let mut bytes = [0; 60];
            for index in 1..8 {
                let (from, to) = (a.bytes(index), 8 * (index - 1));
                bytes[to..to + from.len()].copy_from_slice(from);
            }
            memory.write(a.address(0), &bytes)
        },
    );
    register_kernel(
        "shared_size",
        |a| vec![a.writes::<u32>(0, 1)],
        |a, memory| each(memory, a.address(0), |_| a.shared()),
    );
}

fn register_waits() {
    register_kernel(
        "spin",
        |_| Vec::new(),
        |a, memory| match memory.read_u32(a.address(0))? {
            0 => Err(Trap::Spins),
            _ => Ok(()),
        },
    );
    register_kernel(
        "store",
        |_| Vec::new(),
        |a, memory| memory.write(a.address(0), &a.value::<u32>(1).to_le_bytes()),
    );
}
