//! Meetings at a TCP port of rank 0, for sites without a directory that all machines share. If rank 0 is
//! lost, the others cannot meet again.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::meet::{Arrival, Call, Id, LeftOut, PAUSE, Plan, token};
use crate::shared::Result;

pub(crate) struct Tcp {
    /// Host and port of rank 0.
    address: String,
    job: String,
    rank: usize,
    /// Only at rank 0, from the first meeting on: ranks that come early wait in its queue.
    listener: Option<TcpListener>,
}

/// The longest first line that a rank sends.
const LINE: u64 = 512;

/// How long a connection may take to send its line.
const PATIENCE: Duration = Duration::from_secs(1);

impl Tcp {
    pub(crate) fn new(address: String, job: String, rank: usize) -> Self {
        Self { address, job, rank, listener: None }
    }

    pub(crate) fn meet(
        &mut self,
        call: &Call<'_>,
        make: impl FnOnce() -> Result<Id>,
    ) -> Result<Plan> {
        let own = (self.rank, token());
        if self.rank == 0 { self.lead(call, own, make) } else { self.follow(call, &own) }
    }

    /// The text that a rank sends before its number and token.
    fn greeting(&self, call: &Call<'_>) -> String {
        format!("{} {}", self.job, call.attempt)
    }

    fn error(&self, error: impl Display) -> String {
        format!("{}: {error}", self.address)
    }

    /// Waits for the others, and sends the plan to all.
    fn lead(
        &mut self,
        call: &Call<'_>,
        own: Arrival,
        make: impl FnOnce() -> Result<Id>,
    ) -> Result<Plan> {
        if self.listener.is_none() {
            let port = self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            let port: u16 = port.ok_or_else(|| self.error("not HOST:PORT"))?;
            let bound =
                TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
            let listener =
                bound.map_err(|error| self.error(format!("{error}: give another port")))?;
            listener.set_nonblocking(true)?;
            self.listener = Some(listener);
        }
        let mut here = vec![(own.clone(), None)];
        let since = Instant::now();
        while here.len() < call.expected.len() && since.elapsed() < call.within {
            match self.accept(call)? {
                Some((arrival, stream)) => {
                    here.retain(|(known, _)| known.0 != arrival.0);
                    here.push((arrival, Some(stream)));
                }
                None => thread::sleep(PAUSE),
            }
        }
        here.sort_by_key(|(arrival, _)| arrival.0);
        let (arrivals, streams): (Vec<_>, Vec<_>) = here.into_iter().unzip();
        if call.all && arrivals.len() < call.expected.len() {
            let ranks: Vec<_> = arrivals.iter().map(|(rank, _)| *rank).collect();
            return Err(call.missing(&ranks, &self.address).into());
        }
        let text = Plan::text(&make()?, &arrivals);
        for mut stream in streams.into_iter().flatten() {
            // A rank that was lost just now is missed when the communicator is created.
            _ = stream.write_all(text.as_bytes());
        }
        Plan::parse(&text, &own)
    }

    /// Returns the next rank that has come to this meeting; closes any other connection.
    fn accept(&self, call: &Call<'_>) -> Result<Option<(Arrival, TcpStream)>> {
        let Some(listener) = &self.listener else {
            return Ok(None);
        };
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(self.error(error).into()),
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        if BufReader::new((&stream).take(LINE)).read_line(&mut line).is_err() {
            return Ok(None);
        }
        let greeting = format!("{} ", self.greeting(call));
        let arrival = line.strip_prefix(&greeting).and_then(|rest| rest.trim_end().split_once(' '));
        let arrival =
            arrival.and_then(|(rank, token)| Some((rank.parse().ok()?, token.to_owned())));
        let expected = arrival.filter(|(rank, _)| *rank != 0 && call.expected.contains(rank));
        Ok(expected.map(|arrival| (arrival, stream)))
    }

    /// Asks rank 0 for the plan until it answers.
    fn follow(&self, call: &Call<'_>, own: &Arrival) -> Result<Plan> {
        let (since, limit) = (Instant::now(), 3 * call.within);
        loop {
            let left = limit.saturating_sub(since.elapsed()).max(PAUSE);
            let answer = self.ask(call, own, left);
            match answer {
                Ok(text) if !text.is_empty() => return Plan::parse(&text, own),
                // Rank 0 is not there yet, or is at another meeting.
                _ if since.elapsed() < limit => thread::sleep(PAUSE),
                Ok(_) => return Err(LeftOut("as rank 0 says".to_owned()).into()),
                Err(error) => {
                    let why = "rank 0 does not answer. If it was lost, start the job again: it goes on from \
                               its --checkpoint; with --dir the others could have met without it";
                    return Err(self.error(format!("{error}: {why}")).into());
                }
            }
        }
    }

    fn ask(&self, call: &Call<'_>, own: &Arrival, limit: Duration) -> io::Result<String> {
        let addresses: Vec<_> = self.address.to_socket_addrs()?.collect();
        let mut stream = connect(&addresses, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(format!("{} {} {}\n", self.greeting(call), own.0, own.1).as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Connects to the first of these addresses that answers. Each has an equal share of the limit: the system's
/// own limit is minutes if a machine is down, and a machine may have an unreachable address.
fn connect(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "no address has this name");
    for address in addresses {
        match TcpStream::connect_timeout(address, limit / addresses.len() as u32) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// A port that neither accepts nor refuses connections, like that of a machine that is down.
    fn silent() -> (TcpListener, TcpStream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: the listener's own descriptor, which the call leaves open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr().unwrap();
        // Fills the queue.
        let first = TcpStream::connect(address).unwrap();
        (listener, first, address)
    }

    #[test]
    fn an_address_that_does_not_answer_takes_its_share_of_the_limit() {
        let (_listener, _first, nowhere) = silent();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let limit = Duration::from_secs(1);
        let since = Instant::now();
        let failed = connect(&[nowhere], limit).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::TimedOut);
        let stream = connect(&[nowhere, there], limit).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
        assert!(since.elapsed() < 5 * limit, "{:?}", since.elapsed());
        assert_eq!(connect(&[], limit).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
