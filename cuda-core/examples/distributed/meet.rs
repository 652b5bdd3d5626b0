//! How the ranks of a job meet: they agree on the ranks that take part, and all get the id that one of them
//! made.
//!
//! They meet once for each attempt. All ranks must come to the first meeting; later, those that come within
//! the limit continue without the others. A rank that comes too late is left out and ends.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, process, thread};

use crate::shared::Result;
use crate::tcp::Tcp;

/// The bytes by which the ranks of a communicator find each other.
pub(crate) type Id = [u8; 128];

/// The interval at which a rank looks for the others.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// The agreement of the ranks of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// The ranks that take part, by their original numbers, in the order of their new ranks.
    pub(crate) members: Vec<usize>,
    pub(crate) id: Id,
}

/// The parameters of an attempt's meeting.
pub(crate) struct Call<'a> {
    pub(crate) attempt: usize,
    /// The ranks that may come.
    pub(crate) expected: &'a [usize],
    /// Whether the meeting fails if one of them does not come.
    pub(crate) all: bool,
    pub(crate) within: Duration,
}

/// The error of a rank without which the others have continued.
#[derive(Debug)]
pub(crate) struct LeftOut(pub(crate) String);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the others went on without this rank, {}", self.0)
    }
}

impl std::error::Error for LeftOut {}

/// Where the ranks meet.
pub(crate) enum Meeting {
    Directory(Directory),
    Tcp(Tcp),
}

impl Meeting {
    /// Meets the other ranks; one of them makes the id by `make`.
    pub(crate) fn meet(
        &mut self,
        call: &Call<'_>,
        make: impl FnOnce() -> Result<Id>,
    ) -> Result<Plan> {
        match self {
            Self::Directory(directory) => directory.meet(call, make),
            Self::Tcp(tcp) => tcp.meet(call, make),
        }
    }

    /// Removes the files that the meetings have left. Called by one rank after the last meeting.
    pub(crate) fn end(&self) {
        if let Self::Directory(directory) = self {
            directory.clear();
        }
    }
}

/// A rank that has come, and a token that distinguishes it from the same rank in other runs.
pub(crate) type Arrival = (usize, String);

impl Call<'_> {
    /// Returns the error message for a meeting that lacks required ranks.
    pub(crate) fn missing(&self, here: &[usize], place: impl fmt::Display) -> String {
        let missing = self.expected.iter().filter(|rank| !here.contains(rank));
        let missing: Vec<_> = missing.map(usize::to_string).collect();
        format!(
            "{} of {} ranks came to {place} within {:?}; missing: {}. Look for their errors; start one \
             process for each rank (srun, mpirun), with the same --job, --dir or --tcp for all",
            here.len(),
            self.expected.len(),
            self.within,
            missing.join(" ")
        )
    }
}

impl Plan {
    pub(crate) fn text(id: &Id, here: &[Arrival]) -> String {
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let members = here.iter().map(|(rank, token)| format!("{rank} {token}\n"));
        format!("{id}\n{}", members.collect::<String>())
    }

    /// Reads a plan; returns an error unless it contains this arrival of this rank.
    pub(crate) fn parse(text: &str, own: &Arrival) -> Result<Self> {
        let mut lines = text.lines();
        let digits = lines.next().unwrap_or_default();
        let byte = |at: usize| {
            digits.get(2 * at..2 * at + 2).and_then(|it| u8::from_str_radix(it, 16).ok())
        };
        let bytes: Option<Vec<u8>> = (0..size_of::<Id>()).map(byte).collect();
        let id = bytes.and_then(|bytes| Id::try_from(bytes).ok());
        let member = |line: &str| {
            let (rank, token) = line.split_once(' ')?;
            Some((rank.parse().ok()?, token.to_owned()))
        };
        let members: Option<Vec<Arrival>> = lines.map(member).collect();
        let (id, members) = id.zip(members).ok_or("what the ranks agreed on cannot be read")?;
        if !members.contains(own) {
            let why = "or the files are those of an earlier run: give another --job";
            return Err(LeftOut(why.to_owned()).into());
        }
        Ok(Self { members: members.into_iter().map(|(rank, _)| rank).collect(), id })
    }
}

/// Returns a text that no other process, thread or run has.
pub(crate) fn token() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{}", process::id(), now.as_nanos())
}

/// Writes a file so that others see either all of it or none.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.tmp", token()));
    let write = || {
        let mut file = fs::File::create(&unfinished)?;
        file.write_all(bytes)?;
        // Otherwise a loss of power could leave a part of the file under its name.
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    Ok(write().map_err(|error| {
        format!("{}: {error}: give a --dir that can be written to", path.display())
    })?)
}

/// A directory that all ranks share. The files of an attempt: one for each rank that has come; one that the
/// lowest of these creates to claim the decision; and the plan that it has decided on.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) job: String,
    pub(crate) rank: usize,
}

impl Directory {
    fn prefix(&self) -> String {
        format!("{}.attempt-", self.job)
    }

    fn file(&self, attempt: usize, what: &str) -> PathBuf {
        self.path.join(format!("{}{attempt}.{what}", self.prefix()))
    }

    fn meet(&self, call: &Call<'_>, make: impl FnOnce() -> Result<Id>) -> Result<Plan> {
        let own = (self.rank, token());
        write_whole(&self.file(call.attempt, &format!("rank-{}", self.rank)), own.1.as_bytes())?;
        let decision = self.file(call.attempt, "plan");
        let since = Instant::now();
        loop {
            if let Ok(text) = fs::read_to_string(&decision) {
                return Plan::parse(&text, &own);
            }
            let here = self.here(call);
            let ranks: Vec<_> = here.iter().map(|(rank, _)| *rank).collect();
            let (complete, late) = (ranks == call.expected, since.elapsed() >= call.within);
            if call.all && late && !complete {
                return Err(call.missing(&ranks, self.path.display()).into());
            }
            if (complete || late)
                && ranks.first() == Some(&self.rank)
                && self.claim(call.attempt)?
            {
                let text = Plan::text(&make()?, &here);
                write_whole(&decision, text.as_bytes())?;
                return Plan::parse(&text, &own);
            }
            // The deciding rank may have begun to wait one limit later.
            if since.elapsed() >= 3 * call.within {
                let why = format!("or the rank that decides was lost: no {}", decision.display());
                return Err(LeftOut(why).into());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns the ranks that have come, in order.
    fn here(&self, call: &Call<'_>) -> Vec<Arrival> {
        let token = |rank: &usize| {
            let path = self.file(call.attempt, &format!("rank-{rank}"));
            fs::read_to_string(path).ok().map(|token| (*rank, token))
        };
        call.expected.iter().filter_map(token).collect()
    }

    /// Whether this rank decides: it is the first that creates the file.
    fn claim(&self, attempt: usize) -> Result<bool> {
        let path = self.file(attempt, "decides");
        match fs::File::create_new(&path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(format!("{}: {error}", path.display()).into()),
        }
    }

    fn clear(&self) {
        let Ok(files) = fs::read_dir(&self.path) else {
            return;
        };
        for file in files.flatten() {
            if file.file_name().to_string_lossy().starts_with(&self.prefix()) {
                // A file that cannot be removed only takes space.
                _ = fs::remove_file(file.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for the ranks that come, even if the disk is busy.
    const SHORT: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(60);

    /// A directory of this test, removed with its contents.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("cuda-core-meet-{}", token()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn at(&self, rank: usize) -> Meeting {
            Meeting::Directory(Directory { path: self.0.clone(), job: "job".into(), rank })
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Makes the ranks `come`, out of `expected`, meet at the same time.
    fn meet(
        come: &[usize],
        at: impl Fn(usize) -> Meeting + Sync,
        call: &Call<'_>,
    ) -> Vec<std::result::Result<Plan, String>> {
        let one = |rank: usize| {
            let id = [rank as u8; 128];
            at(rank).meet(call, || Ok(id)).map_err(|error| error.to_string())
        };
        thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> = come.iter().map(|&rank| scope.spawn(move || one(rank))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    /// Returns meetings at a port that was free just now.
    fn tcp() -> impl Fn(usize) -> Meeting + Sync {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        move |rank| Meeting::Tcp(Tcp::new(format!("127.0.0.1:{port}"), "job".into(), rank))
    }

    #[test]
    fn all_ranks_get_the_same_plan() {
        let expected = [0, 1, 2, 3];
        let call = Call { attempt: 0, expected: &expected, all: true, within: LONG };
        let plan = Ok(Plan { members: expected.to_vec(), id: [0; 128] });
        let folder = Folder::new();
        assert_eq!(meet(&expected, |rank| folder.at(rank), &call), vec![plan.clone(); 4]);
        assert_eq!(meet(&expected, tcp(), &call), vec![plan; 4]);
    }

    #[test]
    fn those_that_come_go_on_without_the_others() {
        let call = Call { attempt: 1, expected: &[0, 1, 2, 3], all: false, within: SHORT };
        let folder = Folder::new();
        let plan = Ok(Plan { members: vec![1, 3], id: [1; 128] });
        assert_eq!(meet(&[3, 1], |rank| folder.at(rank), &call), vec![plan; 2]);
        // Rank 2 comes later.
        let late = meet(&[2], |rank| folder.at(rank), &call).remove(0).unwrap_err();
        assert!(late.contains("went on without"), "{late}");
        let plan = Ok(Plan { members: vec![0, 2], id: [0; 128] });
        assert_eq!(meet(&[2, 0], tcp(), &call), vec![plan; 2]);
    }

    #[test]
    fn the_first_meeting_needs_all_and_names_who_is_missing() {
        let call = Call { attempt: 0, expected: &[0, 1, 2], all: true, within: SHORT };
        let folder = Folder::new();
        for error in meet(&[0, 2], |rank| folder.at(rank), &call) {
            assert!(error.unwrap_err().contains("missing: 1."));
        }
        let error = meet(&[0], tcp(), &call).remove(0).unwrap_err();
        assert!(error.contains("missing: 1 2."), "{error}");
        let error = meet(&[1], tcp(), &call).remove(0).unwrap_err();
        assert!(error.contains("rank 0"), "{error}");
    }

    #[test]
    fn files_of_an_earlier_run_are_noticed() {
        let folder = Folder::new();
        let call = Call { attempt: 0, expected: &[0, 1], all: true, within: LONG };
        meet(&[0, 1], |rank| folder.at(rank), &call).into_iter().for_each(|it| drop(it.unwrap()));
        let again = meet(&[0, 1], |rank| folder.at(rank), &call);
        assert!(again.iter().all(|it| it.as_ref().unwrap_err().contains("another --job")));
        folder.at(0).end();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
        meet(&[0, 1], |rank| folder.at(rank), &call).into_iter().for_each(|it| drop(it.unwrap()));
    }
}
