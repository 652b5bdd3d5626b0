use super::*;

/// Makes a space with unused small segments.
fn space(segments: &[(CUdeviceptr, usize)]) -> Space {
    let mut space = Space::default();
    for &(base, bytes) in segments {
        let kind = SegmentKind::Small;
        space.add(Segment { base, bytes, kind, home: None, fate: Fate::Kept });
        space.give(base, None);
    }
    space
}

fn take(space: &mut Space, bytes: usize) -> Option<(CUdeviceptr, usize)> {
    let taken = space.take(NO_OWNER, SegmentKind::Small, bytes)?;
    Some((taken.address, taken.bytes))
}

#[test]
fn the_smallest_that_fits_is_cut() {
    let mut space = space(&[(1, 1000), (2001, 300)]);
    assert_eq!(take(&mut space, 301), Some((1, 301)));
    assert_eq!(take(&mut space, 300), Some((2001, 300)));
    assert_eq!(take(&mut space, 700), None);
    assert_eq!(take(&mut space, 699), Some((302, 699)));
    assert_eq!(take(&mut space, 1), None);
}

#[test]
fn neighbours_become_one_and_segments_stay_apart() {
    // The second segment begins where the first ends.
    let mut space = space(&[(10, 30), (40, 10)]);
    let parts = [10, 20, 30].map(|at| (take(&mut space, 10), at));
    // The smallest comes first: the second segment as a whole.
    assert_eq!(parts.map(|(part, _)| part), [Some((40, 10)), Some((10, 10)), Some((20, 10))]);
    for at in [10, 20, 40] {
        assert_eq!(space.take(NO_OWNER, SegmentKind::Small, 31).map(|t| t.address), None);
        space.give(at, None);
    }
    assert_eq!(space.take(NO_OWNER, SegmentKind::Small, 31).map(|t| t.address), None);
    let mut unused = || space.take_segment().map(|segment| (segment.base, segment.bytes));
    assert_eq!([unused(), unused(), unused()], [Some((10, 30)), Some((40, 10)), None]);
    assert_eq!((space.reserved, space.free), (0, 0));
}

/// Takes and gives ranges at random, and checks them against a map of all units.
#[test]
fn nothing_is_given_twice_or_lost() {
    const UNITS: usize = 64;
    let mut space = space(&[(1, UNITS)]);
    let mut taken = [false; UNITS];
    let mut held: Vec<(CUdeviceptr, usize)> = Vec::new();
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        if random(2) == 0 {
            let bytes = 1 + random(12);
            match take(&mut space, bytes) {
                Some(got) => {
                    assert_eq!(got.1, bytes);
                    let start = got.0 as usize - 1;
                    for unit in &mut taken[start..start + bytes] {
                        assert!(!std::mem::replace(unit, true), "given twice");
                    }
                    held.push(got);
                }
                // Nothing was found, so there is no hole of that size.
                None => assert!(taken.windows(bytes).all(|hole| hole.contains(&true))),
            }
        } else if !held.is_empty() {
            let (address, bytes) = held.swap_remove(random(held.len()));
            let start = address as usize - 1;
            taken[start..start + bytes].fill(false);
            space.give(address, None);
        }
        assert_eq!(space.free, taken.iter().filter(|taken| !**taken).count());
    }
    held.into_iter().for_each(|(address, _)| space.give(address, None));
    assert!(space.take_segment().is_some_and(|segment| segment.bytes == UNITS));
}
