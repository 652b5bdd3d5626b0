//! The suites that Miri interprets: with which options, and in which samples.

/// How Miri treats a pointer made from a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Provenance {
    /// Such a pointer is invalid.
    Strict,
    /// Such a pointer is taken for one whose address was exposed before. The driver returns managed and
    /// mapped memory as addresses, and says whether the host may use them.
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

/// The beginnings of the paths of tests whose host code accesses memory by an address that the driver
/// returned, or gets a stream by its number.
const BY_ADDRESS: &str = "counts::memory::managed_ counts::tensors:: dlpack::e_consumers_ \
    faults::managed:: managed:: pinned_cache::f09_cached_memory_is_mapped:: pointers::f09_mapped:: \
    soundness::managed::";

/// The arguments that select tests for cargo, and the samples that have a share of them.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) provenance: Provenance,
    /// The names of the programs that are built for this machine.
    pub(super) programs: &'static [&'static str],
    pub(super) selection: &'static str,
    pub(super) turn: Turn,
}

/// The samples that have a share of a suite: the distance from one to the next, and the first one. Starting
/// Miri takes as long as ten tests, so each sample has a share of two suites, one for each processor.
pub(super) type Turn = (usize, usize);

/// The number of samples that make up all tests.
pub(super) const SAMPLES: usize = 192;

/// A suite's name, the names of its programs, and the arguments that select them.
type Programs = (&'static str, &'static [&'static str], &'static str);

const SIM: Programs = ("sim", &["cuda-tests::sim"], "-p cuda-tests --test sim");
const GPU: Programs = ("gpu", &["cuda-tests::gpu"], "-p cuda-tests --test gpu");
const UNIT_TESTS: Programs = (
    "unit tests",
    &["cuda-core (unit tests)", "cuda-tests (unit tests)"],
    "-p cuda-core -p cuda-tests --lib",
);

const fn suite((name, programs, selection): Programs, provenance: Provenance, turn: Turn) -> Suite {
    Suite { name, provenance, programs, selection, turn }
}

pub(super) const SUITES: [Suite; 5] = [
    suite(SIM, Provenance::Strict, (1, 0)),
    suite(GPU, Provenance::Strict, (4, 0)),
    suite(SIM, Provenance::Permissive, (4, 1)),
    suite(UNIT_TESTS, Provenance::Strict, (4, 2)),
    suite(GPU, Provenance::Permissive, (4, 3)),
];
