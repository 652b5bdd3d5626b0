//! Draws a report as a picture: the safe layer's time as a multiple of the raw driver's, one line
//! per operation.

use std::cmp::Ordering;

use super::axis::Axis;
use super::report::{Finding, Report, Row, Verdict};
use super::{Unit, peers, table};
use crate::svg::Svg;

const WIDTH: f64 = 1120.0;
const MARGIN: f64 = 24.0;
/// The axis's left end and its length.
const LEFT: f64 = 332.0;
const LENGTH: f64 = 428.0;
/// Right edges of the columns to the right of the axis.
const OURS: f64 = 852.0;
const RAW: f64 = 936.0;
const BESIDE: f64 = 1014.0;
/// The left edge of the last column.
const VERDICT: f64 = 1028.0;
/// Heights of an operation, of a group's name, and of the page above and below both.
const LINE: f64 = 22.0;
const GROUP: f64 = 32.0;
const HEAD: f64 = 132.0;
const FOOT: f64 = 34.0;
/// The distance from the middle of a line to the baseline of its text.
const BASE: f64 = 4.5;
/// The number of characters of a name that always fit before the axis.
const LONGEST: usize = 42;
/// The width of a number under the axis.
const ROOM: f64 = 40.0;

/// A vertical bar at the goal.
const GOAL: &str = "m0 -8v16";

/// A mark on the axis for another figure of a row.
struct Mark<'r> {
    /// The mark's name in the legend and in tooltips.
    name: &'r str,
    class: String,
    /// The SVG path, relative to the mark's place.
    shape: &'static str,
    /// Returns the mark's figure in a row; the second argument is the mark's name.
    figure: Figure,
}

type Figure = fn(&Row, &str) -> Option<f64>;

impl Mark<'_> {
    /// The mark's figure, in the row's unit.
    fn figure(&self, row: &Row) -> Option<f64> {
        (self.figure)(row, self.name)
    }

    /// The mark's figure as a multiple of the raw time.
    fn multiple(&self, row: &Row) -> Option<f64> {
        let measured = row.measured()?;
        Some(measured.unit.ratio(self.figure(row)?, measured.raw?))
    }
}

/// The marks besides those of the safe layer and of the goal: a ring for the rates of devices alone, a
/// bracket for the limit of their links, and for each peer a shape and a colour of its own.
fn marks(report: &Report) -> Vec<Mark<'_>> {
    const PEERS: [&str; peers::NAMES.len()] = [
        "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        "m0 -5l5 9h-10z",
        "m-4 -4h8v8h-8z",
        "m0 5l5 -9h-10z",
    ];
    let peers = table::present(report).zip(PEERS).enumerate();
    let peers = peers.map(|(index, (peer, shape))| Mark {
        name: &peer.name,
        class: format!("peer peer{index}"),
        shape,
        figure: |row, peer| row.peers.get(peer).copied(),
    });
    let ring = "m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0";
    let many: [(_, _, Figure); 2] = [
        ("each device alone, summed", ring, |row, _| row.measured()?.many?.singles),
        ("link limit", "m4 -7h-4v14h4", |row, _| Some(row.measured()?.many?.links?.limit)),
    ];
    let many = many.map(|(name, shape, figure)| Mark { name, class: "many".into(), shape, figure });
    let is_used = |mark: &Mark<'_>| report.rows.iter().any(|row| mark.multiple(row).is_some());
    peers.chain(many).filter(is_used).collect()
}

/// Draws a report as SVG.
pub(crate) fn render(report: &Report) -> String {
    let marks = marks(report);
    let figures = report.rows.iter().flat_map(|row| {
        let own = row.measured();
        let own = own.map(|measured| [measured.ratio, row.goal.limit(measured)]);
        let others = marks.iter().map(|mark| mark.multiple(row));
        own.into_iter().flatten().chain(others).flatten()
    });
    let axis = Axis::over(figures, LEFT, LENGTH);
    let mut body = Svg::default();
    let mut y = HEAD;
    let mut group = "";
    for (index, rows) in lines(&report.rows).enumerate() {
        let row = &rows[0];
        if row.group != group {
            group = &row.group;
            y += GROUP;
            body.text(MARGIN, y - 9.0, "group", group);
        }
        if index % 2 == 1 {
            let (x, width) = (MARGIN - 8.0, WIDTH - 2.0 * MARGIN + 16.0);
            body.shape(format_args!(
                r#"rect class="band" x="{x}" y="{y}" width="{width}" height="{LINE}""#
            ));
        }
        let middle = y + LINE / 2.0;
        match &row.finding {
            Finding::NotRun(why) => not_run(&mut body, rows, why, middle + BASE),
            _ => line_of(&mut body, row, &marks, &axis, middle),
        }
        y += LINE;
    }
    let mut svg = Svg::default();
    head(&mut svg, report, &marks);
    grid(&mut svg, &axis, y);
    svg.add(body);
    svg.page(WIDTH, y + FOOT, &heading(report))
}

/// Groups rows that share a line: one row each, except rows of a group that did not run for the same reason.
fn lines(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|row, next| {
        let not_run = matches!(row.finding, Finding::NotRun(_));
        not_run && row.finding == next.finding && row.group == next.group
    })
}

fn heading(report: &Report) -> String {
    let (met, goals) = report.goals();
    if report.simulated {
        return "cuda-core on a SIMULATED driver: the figures mean nothing".to_owned();
    }
    format!("cuda-core beside the raw driver calls: {met} of {goals} goals met")
}

fn head(svg: &mut Svg, report: &Report, marks: &[Mark<'_>]) {
    svg.text(MARGIN, 38.0, "title", &heading(report));
    let peers: Vec<String> = table::present(report).map(ToString::to_string).collect();
    let mut under = report.driver.clone();
    if !peers.is_empty() {
        under += &format!("; beside it {}", peers.join(", "));
    }
    svg.text(MARGIN, 60.0, "quiet", &under);
    legend(svg, marks, 88.0);
    for (x, name) in [(OURS, "cuda-core"), (RAW, "raw"), (BESIDE, "beside raw")] {
        svg.text(x, HEAD + 4.0, "small quiet end", name);
    }
    svg.text(VERDICT, HEAD + 4.0, "small quiet", "goal");
    let above = HEAD - 14.0;
    svg.text(LEFT, above, "small quiet", "\u{2190} faster than raw");
    let slower = "slower than raw \u{2192}";
    svg.text(LEFT + LENGTH, above, "small quiet end", slower);
}

fn legend(svg: &mut Svg, marks: &[Mark<'_>], y: f64) {
    let verdicts = [Verdict::Met, Verdict::Missed, Verdict::NoGoal];
    let own = verdicts.map(|verdict| own_mark(Ordering::Equal, verdict));
    let names = ["goal met", "goal missed", "no goal"];
    let own = names.into_iter().zip(own);
    let others = marks.iter().map(|mark| (mark.name, (&*mark.class, mark.shape)));
    let mut x = MARGIN + 6.0;
    for (name, sign) in own.chain([("the goal", ("goal", GOAL))]).chain(others) {
        mark(svg, (x, y - BASE), sign);
        svg.text(x + 11.0, y, "", name);
        x += 32.0 + 7.2 * name.chars().count() as f64;
    }
}

fn grid(svg: &mut Svg, axis: &Axis, bottom: f64) {
    let mut named: Vec<f64> = Vec::new();
    for tick in axis.ticks() {
        let (x, top) = (axis.place(tick).0, HEAD + 10.0);
        let (class, name) = match tick {
            1.0 => ("raw", "raw".to_owned()),
            _ => ("grid", format!("{tick} ×")),
        };
        svg.shape(format_args!(
            r#"line class="{class}" x1="{x:.1}" y1="{top}" x2="{x:.1}" y2="{bottom}""#
        ));
        if named.iter().any(|other| (other - x).abs() < ROOM) {
            continue;
        }
        named.push(x);
        for y in [HEAD + 4.0, bottom + 16.0] {
            svg.text(x, y, "small quiet middle", &name);
        }
    }
}

fn line_of(svg: &mut Svg, row: &Row, marks: &[Mark<'_>], axis: &Axis, y: f64) {
    let base = y + BASE;
    svg.group(&tooltip(row, marks), |svg| {
        name(svg, base, &row.name);
        match &row.finding {
            Finding::NotRun(_) => {}
            Finding::Failed(why) => {
                let why: String = why.chars().take(90).collect();
                svg.text(LEFT + 8.0, base, "missed", &format!("FAILED: {why}"));
            }
            Finding::Measured(measured) => {
                draw_marks(svg, row, marks, axis, y);
                let unit = measured.unit;
                let raw = measured.raw.map_or("none".to_owned(), |raw| unit.show(raw));
                svg.text(OURS, base, "end", &unit.show(measured.ours));
                svg.text(RAW, base, "end quiet", &raw);
                svg.text(BESIDE, base, "end", &table::beside(row));
                let goal = row.goal.resolved(measured).to_string();
                let goal = if goal.is_empty() { "no goal" } else { &goal };
                svg.text(VERDICT, base, class(row.verdict), goal);
            }
        }
    });
}

/// Writes the name before the axis, compressed if it is too long.
fn name(svg: &mut Svg, y: f64, name: &str) {
    let x = MARGIN + 8.0;
    let room = LEFT - x - 8.0;
    if name.chars().count() <= LONGEST {
        return svg.text(x, y, "", name);
    }
    let narrow = r#"lengthAdjust="spacingAndGlyphs" textLength"#;
    svg.text_with(x, y, format_args!(r#"{narrow}="{room}""#), name);
}

fn not_run(svg: &mut Svg, rows: &[Row], why: &str, y: f64) {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let what = match names[..] {
        [name] => name.to_owned(),
        _ => format!("{} operations", names.len()),
    };
    svg.group(&names.join("; "), |svg| {
        svg.text(MARGIN + 8.0, y, "quiet", &what);
        svg.text(LEFT + 8.0, y, "quiet", &format!("not run: {why}"));
    });
}

/// The tooltip of a line.
fn tooltip(row: &Row, marks: &[Mark<'_>]) -> String {
    let mut tooltip = format!("{}: {}", row.name, row.verdict.describe());
    if let Some(measured) = row.measured() {
        let others = marks.iter().map(|mark| (mark.name, mark.figure(row)));
        let all = [("cuda-core", Some(measured.ours))].into_iter().chain(others);
        let show = |(name, figure)| Some(format!(", {name} {}", measured.unit.show(figure?)));
        tooltip.extend(all.filter_map(show));
    }
    tooltip
}

fn draw_marks(svg: &mut Svg, row: &Row, marks: &[Mark<'_>], axis: &Axis, y: f64) {
    let Some(measured) = row.measured() else { return };
    let Some(ratio) = measured.ratio else {
        let what = match measured.unit {
            Unit::Nanoseconds => "no raw call does the same",
            Unit::Gigabytes | Unit::Millions => "nothing raw to compare it with",
        };
        svg.text(LEFT + 8.0, y + BASE, "quiet small", what);
        return;
    };
    let ((to, side), class) = (axis.place(ratio), class(row.verdict));
    let from = axis.place(1.0).0;
    svg.shape(format_args!(
        r#"line class="bar {class}" x1="{from:.1}" y1="{y}" x2="{to:.1}" y2="{y}""#
    ));
    let goal = row.goal.limit(measured).map(|limit| (limit, ("goal", GOAL)));
    let others = marks.iter().filter_map(|it| Some((it.multiple(row)?, (&*it.class, it.shape))));
    for (multiple, sign) in goal.into_iter().chain(others) {
        mark(svg, (axis.place(multiple).0, y), sign);
    }
    mark(svg, (to, y), own_mark(side, row.verdict));
}

fn mark(svg: &mut Svg, (x, y): (f64, f64), (class, shape): (&str, &str)) {
    svg.shape(format_args!(r#"path class="{class}" d="M{x:.1} {y}{shape}""#));
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed | Verdict::Failed => "missed",
        Verdict::NoGoal | Verdict::NotRun => "none",
    }
}

/// The class and shape of the safe layer's mark: a dot, or a cross if the goal was missed, or an arrow if the
/// figure is beyond the axis.
fn own_mark(side: Ordering, verdict: Verdict) -> (&'static str, &'static str) {
    let shape = match side {
        Ordering::Less => "l9 -6v12z",
        Ordering::Greater => "l-9 -6v12z",
        Ordering::Equal if verdict == Verdict::Missed => {
            "m-6 -4l2 -2l4 4l4 -4l2 2l-4 4l4 4l-2 2l-4 -4l-4 4l-2 -2l4 -4z"
        }
        Ordering::Equal => "m-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0 -11 0",
    };
    (class(verdict), shape)
}

#[cfg(test)]
mod tests {
    use super::super::goal::Goal;
    use super::super::report::tests::{many, sample};
    use super::*;
    use crate::svg::STYLE;
    use crate::svg::tests::check;

    #[test]
    fn it_is_well_formed_whatever_names_hold() {
        check(&render(&sample())).unwrap();
        check(&render(&Report::new("no rows".into(), true, 3))).unwrap();
    }

    #[test]
    fn a_missed_goal_is_red_and_a_met_one_is_not() {
        let mut report = sample();
        report.rows.truncate(2);
        let line = |svg: &str, name: &str| {
            let at = svg.find(&format!("<g><title>{name}")).unwrap();
            svg[at..].split("</g>").next().unwrap().to_owned()
        };
        let svg = render(&report);
        let (met, missed) = (line(&svg, "guard"), line(&svg, "upload"));
        assert!(met.contains("class=\"met\"") && !met.contains("missed"), "{met}");
        assert!(missed.contains("class=\"bar missed\"") && !missed.contains("\"met\""), "{missed}");
        assert!(STYLE.contains("text.missed { fill: #cf222e }"));
    }

    #[test]
    fn peers_goals_and_absences_are_drawn() {
        let svg = render(&sample());
        // CuPy has one figure and one place in the legend.
        assert_eq!(svg.matches("class=\"peer peer0\"").count(), 2);
        assert!(!svg.contains("peer1\" d"), "PyTorch is not there");
        assert!(svg.contains("not run: needs 2 devices"));
        assert!(svg.contains("FAILED: out of memory"));
        assert!(svg.contains("3 of 4 goals met"));
    }

    #[test]
    fn each_peer_has_a_colour_on_light_and_on_dark() {
        for index in 0..peers::NAMES.len() {
            assert_eq!(STYLE.matches(&format!(".peer{index} {{")).count(), 2, "{index}");
        }
    }

    #[test]
    fn sums_and_limits_are_drawn_where_many_devices_are() {
        let mut report = sample();
        assert!(!render(&report).contains("\"many\""));
        report.rows.extend(many());
        let svg = render(&report);
        check(&svg).unwrap();
        // Two rows of each kind, and the legend.
        assert_eq!(svg.matches("path class=\"many\"").count(), 6);
        assert!(svg.contains(", each device alone, summed 220 GB/s<"), "{svg}");
        assert!(svg.contains(", link limit 396 GB/s<"), "{svg}");
        let gather = report.rows.iter().find(|row| row.name == "gather").unwrap();
        let multiples = marks(&report).into_iter().map(|mark| mark.multiple(gather));
        let multiples: Vec<_> = multiples.collect();
        assert_eq!(multiples, [None, Some(145.0 / 220.0), None]);
    }

    #[test]
    fn what_did_not_run_for_one_reason_shares_a_line() {
        let mut report = sample();
        let none = Finding::NotRun("needs 2 devices".into());
        report.rows.insert(6, Row::new("several devices", "ring", &Goal::Share(0.97), none));
        report.judge();
        let svg = render(&report);
        assert_eq!(svg.matches("not run: needs 2 devices").count(), 1);
        assert!(svg.contains("<title>peer copy; ring</title>") && svg.contains(">2 operations<"));
    }

    #[test]
    fn a_simulated_run_is_labelled() {
        let mut report = sample();
        report.simulated = true;
        assert!(render(&report).contains("SIMULATED"));
    }
}
