//! Dividing tests into shares that take about as long as each other.

/// Deals `items` out to `count` shares: the longest first, each to the share that has least so far. Always
/// the same of the same items; within a share they are in the order given.
pub(super) fn deal<T>(items: Vec<T>, count: usize, seconds: impl Fn(&T) -> f64) -> Vec<Vec<T>> {
    let mut by_time: Vec<usize> = (0..items.len()).collect();
    by_time.sort_by(|&a, &b| seconds(&items[b]).total_cmp(&seconds(&items[a])));
    let mut loads = vec![0.0_f64; count.max(1)];
    let mut of = vec![0; items.len()];
    for at in by_time {
        let least = (0..loads.len()).min_by(|&a, &b| loads[a].total_cmp(&loads[b])).unwrap_or(0);
        loads[least] += seconds(&items[at]);
        of[at] = least;
    }
    let mut shares: Vec<Vec<T>> = loads.iter().map(|_| Vec::new()).collect();
    for (item, share) in items.into_iter().zip(of) {
        shares[share].push(item);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::deal;

    #[test]
    fn each_item_is_in_one_share() {
        let items: Vec<u32> = (0..50).collect();
        let shares = deal(items.clone(), 7, |item| f64::from(item % 5));
        assert_eq!(shares.len(), 7);
        let mut dealt = shares.concat();
        dealt.sort_unstable();
        assert_eq!(dealt, items);
    }

    #[test]
    fn shares_take_as_long_as_each_other() {
        let shares = deal(vec![9, 1, 1, 1, 5, 5, 8], 3, |item| f64::from(*item));
        let loads: Vec<i32> = shares.iter().map(|share| share.iter().sum()).collect();
        assert_eq!(loads, [10, 10, 10]);
    }

    #[test]
    fn there_may_be_fewer_items_than_shares() {
        let shares = deal(vec!["a"], 3, |_| 1.0);
        assert_eq!(shares, [vec!["a"], vec![], vec![]]);
    }
}
