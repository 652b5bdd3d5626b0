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

use std::sync::Once;

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

/// Loads one of them.
///
/// # Errors
/// The driver's.
pub fn get(context: &Context, name: &str) -> Result<Function> {
    load(context)?.function(name)
}

/// Registers with the simulated driver what the kernels do; [`load`] does it too.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_kernel("nothing", |_| Vec::new(), |_, _| Ok(()));
        let six = |arguments: &Arguments| {
            let addresses = (0..6).map(|index| arguments.u64(index));
            addresses.map(|address| Region::read(address, 1)).collect()
        };
        register_kernel("take_six", six, |_, _| Ok(()));
        register_words();
        register_scalars();
        register_waits();
    });
}

/// How many elements a launch covers of the `n` that parameter `index` holds.
fn covered(arguments: &Arguments, index: usize) -> usize {
    u64::from(arguments.u32(index)).min(arguments.threads()) as usize
}

/// Replaces each of `n` words at `address`.
fn each(
    memory: &mut Memory<'_>,
    address: u64,
    n: usize,
    mut f: impl FnMut(usize, u32) -> u32,
) -> Result<(), Trap> {
    let mut bytes = vec![0; 4 * n];
    memory.read(address, &mut bytes)?;
    for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
        let old = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        word.copy_from_slice(&f(index, old).to_le_bytes());
    }
    memory.write(address, &bytes)
}

fn words(memory: &mut Memory<'_>, address: u64, n: usize) -> Result<Vec<u32>, Trap> {
    let mut bytes = vec![0; 4 * n];
    memory.read(address, &mut bytes)?;
    let words = bytes.chunks_exact(4);
    Ok(words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

fn register_words() {
    register_kernel(
        "fill_words",
        |a| vec![Region::write(a.u64(0), 4 * covered(a, 2))],
        |a, memory| each(memory, a.u64(0), covered(a, 2), |_, _| a.u32(1)),
    );
    register_kernel(
        "add_one",
        |a| vec![Region::write(a.u64(0), 4 * covered(a, 1))],
        |a, memory| each(memory, a.u64(0), covered(a, 1), |_, old| old.wrapping_add(1)),
    );
    register_kernel(
        "copy_words",
        |a| {
            let bytes = 4 * covered(a, 2);
            vec![Region::write(a.u64(0), bytes), Region::read(a.u64(1), bytes)]
        },
        |a, memory| {
            let from = words(memory, a.u64(1), covered(a, 2))?;
            each(memory, a.u64(0), from.len(), |index, _| from[index])
        },
    );
    register_kernel(
        "saxpy",
        |a| {
            let bytes = 4 * covered(a, 3);
            vec![Region::read(a.u64(1), bytes), Region::write(a.u64(2), bytes)]
        },
        |a, memory| {
            let x = words(memory, a.u64(1), covered(a, 3))?;
            each(memory, a.u64(2), x.len(), |index, y| {
                let product = a.f32(0) * f32::from_bits(x[index]);
                (product + f32::from_bits(y)).to_bits()
            })
        },
    );
    register_kernel(
        "stir",
        |a| vec![Region::write(a.u64(0), 4 * covered(a, 1))],
        |a, memory| each(memory, a.u64(0), covered(a, 1), |_, old| stirred(old, a.u32(2))),
    );
}

/// The value that `stir` computes from a word.
#[must_use]
pub fn stirred(word: u32, rounds: u32) -> u32 {
    (0..rounds).fold(word, |word, _| word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
}

fn register_scalars() {
    register_kernel(
        "increment",
        |a| vec![Region::write(a.u64(0), 4)],
        |a, memory| each(memory, a.u64(0), 1, |_, old| old.wrapping_add(a.threads() as u32)),
    );
    register_kernel(
        "bump",
        |a| vec![Region::write(a.global("counter"), 4)],
        |a, memory| {
            let by = a.u32(0).wrapping_mul(a.threads() as u32);
            each(memory, a.global("counter"), 1, |_, old| old.wrapping_add(by))
        },
    );
    register_kernel(
        "look_up",
        |a| vec![Region::write(a.u64(0), 16), Region::read(a.global("table"), 16)],
        |a, memory| {
            let table = words(memory, a.global("table"), 4)?;
            each(memory, a.u64(0), 4, |index, _| table[index])
        },
    );
    register_kernel(
        "echo",
        |a| vec![Region::write(a.u64(0), 60)],
        |a, memory| {
            let mut bytes = [0; 60];
            for index in 1..8 {
                let (from, to) = (a.bytes(index), 8 * (index - 1));
                bytes[to..to + from.len()].copy_from_slice(from);
            }
            memory.write(a.u64(0), &bytes)
        },
    );
    register_kernel(
        "shared_size",
        |a| vec![Region::write(a.u64(0), 4)],
        |a, memory| memory.write_u32(a.u64(0), a.shared()),
    );
}

fn register_waits() {
    register_kernel(
        "spin",
        |_| Vec::new(),
        |a, memory| match memory.read_u32(a.u64(0))? {
            0 => Err(Trap::Spins),
            _ => Ok(()),
        },
    );
    register_kernel("store", |_| Vec::new(), |a, memory| memory.write_u32(a.u64(0), a.u32(1)));
}
