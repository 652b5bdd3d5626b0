//! The rank of this process and the number of ranks: by the variables that launchers set.

use crate::shared::Result;

/// A rank of a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// The rank among those of this machine, if known.
    pub(crate) local_rank: Option<usize>,
    /// Whether all ranks are known to be on this machine.
    pub(crate) one_machine: bool,
    /// The same for all ranks of a job, and for no other job.
    pub(crate) job: String,
    /// The origin of these values.
    pub(crate) source: &'static str,
}

/// The variables that a launcher sets.
struct Launcher {
    name: &'static str,
    /// A variable that only this launcher sets.
    sign: &'static str,
    rank: &'static str,
    /// The first one that is set counts.
    size: [&'static str; 2],
    local_rank: &'static str,
    local_size: &'static str,
    job: [&'static str; 3],
}

/// In order of precedence: a launcher that runs inside a job of another one comes first. In a job of Slurm,
/// Slurm's variables are also set for processes that `mpirun` or `torchrun` starts.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        sign: "RANK",
        rank: "RANK",
        size: ["WORLD_SIZE"; 2],
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
        job: ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"],
    },
    Launcher {
        name: "Open MPI",
        sign: "OMPI_COMM_WORLD_RANK",
        rank: "OMPI_COMM_WORLD_RANK",
        size: ["OMPI_COMM_WORLD_SIZE"; 2],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        job: ["SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    // Slurm may set the variables of PMI, too, but not the local ones.
    Launcher {
        name: "MPICH or Intel MPI",
        sign: "MPI_LOCALRANKID",
        rank: "PMI_RANK",
        size: ["PMI_SIZE"; 2],
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
        job: ["SLURM_JOB_ID"; 3],
    },
    Launcher {
        name: "Slurm",
        sign: "SLURM_PROCID",
        rank: "SLURM_PROCID",
        size: ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_size: "",
        job: ["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
    },
];

/// Values given by options; each takes precedence over any variable.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Given {
    pub(crate) rank: Option<usize>,
    pub(crate) size: Option<usize>,
    pub(crate) local_rank: Option<usize>,
    pub(crate) job: Option<String>,
}

impl Place {
    /// Finds the place of this process; a single rank if neither an option nor a launcher says otherwise.
    pub(crate) fn find(given: &Given, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number = |name: &str| -> Result<Option<usize>> {
            let parse = |value: String| {
                let number = value.parse();
                number.map_err(|_| {
                    format!("{name}={value} is not a number: unset it, or give --rank and --size")
                })
            };
            Ok(set(name).map(parse).transpose()?)
        };
        let launcher = LAUNCHERS.iter().find(|it| set(it.sign).is_some());
        let by =
            |name: fn(&Launcher) -> &'static str| launcher.map_or(Ok(None), |it| number(name(it)));
        let mut source = launcher.map_or("no launcher", |it| it.name);
        // PMIx sets only the rank: the size needs a call of its library.
        let (mut rank, mut size) =
            (by(|it| it.rank)?, by(|it| it.size[0])?.or(by(|it| it.size[1])?));
        if launcher.is_none() && set("PMIX_RANK").is_some() {
            (rank, source) = (number("PMIX_RANK")?, "PMIx");
        }
        if given.rank.is_some() || given.size.is_some() {
            source = "options";
        }
        (rank, size) = (given.rank.or(rank), given.size.or(size));
        let (rank, size) = match (rank, size) {
            (None, None) => (0, 1),
            (Some(rank), Some(size)) => (rank, size),
            (Some(_), None) => {
                return Err(
                    format!("{source} gave a rank but no number of ranks: give --size").into()
                );
            }
            (None, Some(_)) => {
                return Err(
                    format!("{source} gave a number of ranks but no rank: give --rank").into()
                );
            }
        };
        if rank >= size {
            return Err(format!(
                "rank {rank} of {size}, by {source}: ranks begin with 0, and are less than the size"
            )
            .into());
        }
        let local_rank = given.local_rank.or(by(|it| it.local_rank)?);
        let local_size = by(|it| it.local_size)?;
        let names = launcher.map_or(["PMIX_NAMESPACE"; 3], |it| it.job);
        let mut parts: Vec<String> = names.into_iter().filter_map(set).collect();
        parts.dedup();
        let job = given.job.clone().unwrap_or_else(|| match parts.is_empty() {
            true => "by-hand".to_owned(),
            false => parts.join("-"),
        });
        let job = job.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        Ok(Self {
            rank,
            size,
            local_rank,
            one_machine: size == 1 || local_size == Some(size),
            job,
            source,
        })
    }

    /// The number of this rank's device among the `devices` of its machine: its local rank. If that is
    /// unknown, the rank modulo `devices`, as launchers fill one machine after the other.
    pub(crate) fn device(&self, devices: usize) -> Option<usize> {
        let local = self.local_rank.or(self.rank.checked_rem(devices))?;
        (local < devices).then_some(local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(given: &Given, variables: &[(&str, &str)]) -> std::result::Result<Place, String> {
        let find = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Place::find(given, find).map_err(|error| error.to_string())
    }

    fn numbers(variables: &[(&str, &str)]) -> (usize, usize, Option<usize>, &'static str) {
        let place = place(&Given::default(), variables).unwrap();
        (place.rank, place.size, place.local_rank, place.source)
    }

    const SLURM: [(&str, &str); 6] = [
        ("SLURM_PROCID", "5"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_STEP_NUM_TASKS", "6"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "2"),
    ];

    #[test]
    fn each_launcher_has_its_variables() {
        assert_eq!(numbers(&[]), (0, 1, None, "no launcher"));
        assert_eq!(numbers(&SLURM), (5, 6, Some(1), "Slurm"));
        let all = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "8")];
        assert_eq!(numbers(&all), (1, 8, None, "Slurm"));
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")];
        assert_eq!(numbers(&torchrun), (3, 4, Some(1), "torchrun"));
        // Slurm sets the first two as well when it starts programs of MPICH.
        let pmi = [("PMI_RANK", "2"), ("PMI_SIZE", "3")];
        assert_eq!(numbers(&[&SLURM[..], &pmi].concat()), (5, 6, Some(1), "Slurm"));
        let hydra = [&pmi[..], &[("MPI_LOCALRANKID", "0"), ("MPI_LOCALNRANKS", "1")]].concat();
        assert_eq!(numbers(&hydra), (2, 3, Some(0), "MPICH or Intel MPI"));
        assert_eq!(numbers(&[&SLURM[..], &hydra].concat()), (2, 3, Some(0), "MPICH or Intel MPI"));
    }

    #[test]
    fn mpirun_in_a_job_of_slurm_counts_before_slurm() {
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_NAMESPACE", "prterun-host/9@1"),
        ];
        let both = [&SLURM[..], &open_mpi].concat();
        assert_eq!(numbers(&both), (1, 2, Some(1), "Open MPI"));
        let place = place(&Given::default(), &both).unwrap();
        // Slurm's number of the step is not the same for all processes of mpirun.
        assert_eq!((place.one_machine, &*place.job), (true, "77-prterun-host_9_1"));
    }

    #[test]
    fn pmix_needs_the_size() {
        let pmix = [("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "a")];
        assert!(place(&Given::default(), &pmix).unwrap_err().contains("give --size"));
        let place = place(&Given { size: Some(2), ..Given::default() }, &pmix).unwrap();
        assert_eq!((place.rank, place.size, &*place.job), (1, 2, "a"));
    }

    #[test]
    fn ranks_of_one_machine_take_devices_of_their_own() {
        let at = |rank: &'static str, local_rank| {
            let given = Given { size: Some(16), local_rank, ..Given::default() };
            place(&given, &[("PMIX_RANK", rank)]).unwrap().device(8)
        };
        assert_eq!((at("1", None), at("9", None), at("15", None)), (Some(1), Some(1), Some(7)));
        assert_eq!((at("1", Some(3)), at("1", Some(8))), (Some(3), None));
        assert_eq!(place(&Given::default(), &[]).unwrap().device(0), None);
    }

    #[test]
    fn options_go_before_variables() {
        let given =
            Given { rank: Some(0), size: Some(2), local_rank: Some(0), job: Some("b/c".into()) };
        let place = place(&given, &SLURM).unwrap();
        let found = (place.rank, place.size, place.local_rank, &*place.job);
        assert_eq!(found, (0, 2, Some(0), "b_c"));
    }

    #[test]
    fn nonsense_is_refused_with_what_to_do() {
        let refused = |variables: &[(&str, &str)]| place(&Given::default(), variables).unwrap_err();
        assert!(refused(&[("RANK", "one")]).contains("unset it"));
        assert!(refused(&[("RANK", "2"), ("WORLD_SIZE", "2")]).contains("less than the size"));
        assert!(refused(&[("RANK", "2")]).contains("give --size"));
        let given = Given { size: Some(2), ..Given::default() };
        assert!(place(&given, &[]).unwrap_err().contains("give --rank"));
    }
}
