//! Ends of copies that own their host memory: they are waited for, dropped or forgotten.

use proptest::prelude::*;

use crate::property::outcome::{Done, same, take};
use crate::property::world::World;

#[derive(Debug, Clone)]
pub(in crate::property) enum FlightOp {
    Wait { flight: u8 },
    IsDone { flight: u8 },
    Drop { flight: u8 },
    Forget { flight: u8 },
}

pub(in crate::property) fn ops() -> impl Strategy<Value = FlightOp> {
    let flight = any::<u8>;
    prop_oneof![
        3 => flight().prop_map(|flight| FlightOp::Wait { flight }),
        1 => flight().prop_map(|flight| FlightOp::IsDone { flight }),
        2 => flight().prop_map(|flight| FlightOp::Drop { flight }),
        1 => flight().prop_map(|flight| FlightOp::Forget { flight }),
    ]
}

impl World {
    pub(super) fn flights(&mut self, op: FlightOp) -> Done {
        let (FlightOp::Wait { flight: number }
        | FlightOp::IsDone { flight: number }
        | FlightOp::Drop { flight: number }
        | FlightOp::Forget { flight: number }) = op;
        let Some((flight, contents)) = take(&mut self.flights, number) else {
            return Ok(());
        };
        match op {
            FlightOp::Wait { .. } => {
                let bytes = flight.wait()?;
                same(&bytes, &contents)?;
            }
            FlightOp::IsDone { .. } => {
                let done = flight.is_done();
                self.flights.push((flight, contents));
                done?;
            }
            FlightOp::Drop { .. } => drop(flight),
            FlightOp::Forget { .. } => self.forgotten.flights.push((flight, contents)),
        }
        Ok(())
    }
}
