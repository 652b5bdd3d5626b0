//! The suite that needs the simulated driver's eyes: call counts, faults, quarantine, schedules.
