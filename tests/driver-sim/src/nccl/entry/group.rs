//! Begins and ends groups.

use crate::nccl::raw::Code;
use crate::report::ViolationKind;

nccl_entries! {
    ncclGroupStart() |call| {
        call.start_group();
        Ok(())
    }

    ncclGroupEnd() |call| {
        call.end_group().unwrap_or_else(|| {
            let message = "no group is open on this thread".to_owned();
            call.log.violation(ViolationKind::NotReady, "ncclGroupEnd", message);
            Err(Code::INVALID_USAGE)
        })
    }
}
