//! What is interpreted, how, and in which samples.

/// How Miri treats a pointer made from a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Provenance {
    /// Such a pointer is invalid.
    Strict,
    /// It is taken for one whose address was exposed before: for managed and mapped memory the
    /// driver returns an address, and whether the host may use it.
    Permissive,
}

impl Provenance {
    /// The word in Miri's option.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Permissive => "permissive",
        }
    }

    /// The provenance that a test needs.
    pub(super) fn of(test: &str) -> Self {
        let by_address = BY_ADDRESS.split(' ').any(|part| test.starts_with(part));
        if by_address { Self::Permissive } else { Self::Strict }
    }
}

/// Tests whose host code accesses memory by an address that the driver returned, or is given a stream by
/// its number: the beginnings of their paths.
const BY_ADDRESS: &str = "counts::memory::managed_ counts::tensors:: dlpack::e_consumers_ \
    faults::managed:: managed:: pinned_cache::f09_cached_memory_is_mapped:: pointers::f09_mapped:: \
    soundness::managed::";

/// The arguments that select tests for cargo, and the samples that have a share of them.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) provenance: Provenance,
    /// What the programs are called where they are built for this machine.
    pub(super) programs: &'static [&'static str],
    pub(super) selection: &'static str,
    pub(super) turn: Turn,
}

/// Which samples a suite has a share of: how many go by from one share to the next, and the first that has
/// one. Starting Miri takes as long as ten tests, so not every sample has a share of every suite; but each
/// has some of either provenance.
pub(super) type Turn = (usize, usize);

pub(super) const EACH: Turn = (1, 0);
pub(super) const EVEN: Turn = (2, 0);
pub(super) const ODD: Turn = (2, 1);

/// Samples that make up all tests.
pub(super) const SAMPLES: usize = 192;

/// What programs are called, and the arguments that select them.
type Programs = (&'static str, &'static [&'static str], &'static str);

const SIM: Programs = ("sim", &["cuda-tests::sim"], "-p cuda-tests --test sim");
const GPU: Programs = ("gpu", &["cuda-tests::gpu"], "-p cuda-tests --test gpu");
const UNIT_TESTS: Programs = (
    "unit tests",
    &["cuda-core (unit tests)", "cuda-driver-sim (unit tests)", "cuda-tests (unit tests)"],
    "-p cuda-core -p cuda-driver-sim -p cuda-tests --lib",
);

const fn suite((name, programs, selection): Programs, provenance: Provenance, turn: Turn) -> Suite {
    Suite { name, provenance, programs, selection, turn }
}

pub(super) const SUITES: [Suite; 5] = [
    suite(SIM, Provenance::Strict, EACH),
    suite(GPU, Provenance::Strict, EVEN),
    suite(SIM, Provenance::Permissive, EVEN),
    suite(GPU, Provenance::Permissive, ODD),
    suite(UNIT_TESTS, Provenance::Strict, ODD),
];
