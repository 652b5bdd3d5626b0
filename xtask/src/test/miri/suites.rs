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
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict provenance",
            Self::Permissive => "permissive provenance",
        }
    }

    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Strict => "-Zmiri-strict-provenance",
            Self::Permissive => "-Zmiri-permissive-provenance",
        }
    }

    /// The provenance that a test needs.
    pub(super) fn of(test: &str) -> Self {
        match BY_ADDRESS.split(' ').any(|part| test.starts_with(part)) {
            true => Self::Permissive,
            false => Self::Strict,
        }
    }
}

/// Tests whose host code accesses memory by an address that the driver returned: the beginnings of
/// their paths.
const BY_ADDRESS: &str = "counts::memory::managed_ faults::managed:: managed:: \
    pinned_cache::f09_cached_memory_is_mapped:: pointers::f09_mapped:: soundness::managed::";

/// The arguments that select tests for cargo, and the samples that have a share of them.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) provenance: Provenance,
    /// What the programs are called where they are built for this machine.
    pub(super) programs: &'static [&'static str],
    pub(super) selection: &'static str,
    pub(super) turn: Turn,
}

/// Which samples a suite has a share of. Starting Miri takes as long as ten tests, so not every
/// sample has a share of every suite; but each has some of either provenance.
#[derive(Clone, Copy)]
pub(super) enum Turn {
    Each,
    Even,
    Odd,
}

impl Turn {
    /// How many samples go by from one share to the next, and the first that has one.
    pub(super) fn pace(self) -> (usize, usize) {
        match self {
            Self::Each => (1, 0),
            Self::Even => (2, 0),
            Self::Odd => (2, 1),
        }
    }
}

/// Samples that make up all tests.
pub(super) const SAMPLES: usize = 20;

const fn sim(provenance: Provenance, turn: Turn) -> Suite {
    Suite {
        name: "sim",
        provenance,
        programs: &["cuda-tests::sim"],
        selection: "-p cuda-tests --test sim",
        turn,
    }
}

const fn gpu(provenance: Provenance, turn: Turn) -> Suite {
    Suite {
        name: "gpu",
        programs: &["cuda-tests::gpu"],
        selection: "-p cuda-tests --test gpu",
        ..sim(provenance, turn)
    }
}

pub(super) const SUITES: [Suite; 5] = [
    sim(Provenance::Strict, Turn::Each),
    gpu(Provenance::Strict, Turn::Even),
    sim(Provenance::Permissive, Turn::Even),
    gpu(Provenance::Permissive, Turn::Odd),
    Suite {
        name: "unit tests",
        programs: &[
            "cuda-core (unit tests)",
            "cuda-driver-sim (unit tests)",
            "cuda-tests (unit tests)",
        ],
        selection: "-p cuda-core -p cuda-driver-sim -p cuda-tests --lib",
        ..sim(Provenance::Strict, Turn::Odd)
    },
];
