//! Draws a report as a picture: the safe layer's time as a multiple of the raw driver's, one line
//! per operation.

mod axis;
mod marks;

use std::fmt::Write as _;

use super::many::Many;
use super::measure::{Measured, Unit};
use super::report::{Finding, Report, Row, Verdict};
use super::table;
use axis::{Axis, Place};

/// Light, or dark if the reader's page is; it paints its own background, so it is legible on
/// either.
const STYLE: &str = include_str!("plot/style.css");

const WIDTH: f64 = 1120.0;
const MARGIN: f64 = 24.0;
/// Where the axis begins, and how long it is.
const LEFT: f64 = 332.0;
const LENGTH: f64 = 428.0;
/// Right edges of the columns beside it.
const OURS: f64 = 852.0;
const RAW: f64 = 936.0;
const BESIDE: f64 = 1014.0;
/// Left edge of the last column.
const VERDICT: f64 = 1028.0;
/// Heights of an operation, of a group's name, and of what stands above both.
const LINE: f64 = 22.0;
const GROUP: f64 = 32.0;
const HEAD: f64 = 132.0;
const FOOT: f64 = 34.0;
/// Characters of a name that always fit before the axis.
const LONGEST: usize = 42;
/// Width of a number under the axis.
const ROOM: f64 = 40.0;

/// Draws a report as SVG.
pub(crate) fn render(report: &Report) -> String {
    let axis = Axis::over(report.rows.iter().flat_map(figures), LEFT, LENGTH);
    let mut body = String::new();
    let mut y = HEAD;
    let mut group = "";
    for (index, rows) in lines(&report.rows).enumerate() {
        let [row, ..] = rows else { continue };
        if row.group != group {
            group = &row.group;
            y += GROUP;
            text(&mut body, MARGIN, y - 9.0, "group", group);
        }
        if index % 2 == 1 {
            let (x, width) = (MARGIN - 8.0, WIDTH - 2.0 * MARGIN + 16.0);
            let _ = writeln!(
                body,
                r#"<rect class="band" x="{x}" y="{y}" width="{width}" height="{LINE}"/>"#
            );
        }
        let middle = y + LINE / 2.0;
        match &row.finding {
            Finding::NotRun(why) => not_run(&mut body, rows, why, middle),
            _ => line_of(&mut body, report, row, &axis, middle),
        }
        y += LINE;
    }
    let height = y + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        escape(&heading(report)),
        WIDTH - 1.0,
        height - 1.0,
    );
    head(&mut svg, report);
    grid(&mut svg, &axis, y);
    svg + &body + "</svg>\n"
}

/// Rows that share a line: one each, except the rows of a group that did not run for the same
/// reason.
fn lines(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|row, next| {
        let not_run = matches!(row.finding, Finding::NotRun(_));
        not_run && row.finding == next.finding && row.group == next.group
    })
}

/// All figures of a row that the axis shows.
fn figures(row: &Row) -> Vec<f64> {
    let Some(measured) = row.measured() else {
        return Vec::new();
    };
    let peers = row.peers.values();
    let peers = peers.filter_map(|figure| multiple(measured, *figure));
    let (singles, links) = beside_many(measured);
    let ours = [measured.ratio, row.goal.limit(measured), singles, links];
    ours.into_iter().flatten().chain(peers).collect()
}

/// The multiples for the sum of what each device reaches alone, and for the limit of their links.
fn beside_many(measured: &Measured) -> (Option<f64>, Option<f64>) {
    let place = |rate: Option<f64>| multiple(measured, rate?);
    let many = measured.many.as_ref();
    (place(many.and_then(|many| many.singles)), place(many.and_then(Many::limit)))
}

/// The multiple of the raw time for `figure`.
fn multiple(measured: &Measured, figure: f64) -> Option<f64> {
    Measured::new(measured.unit, figure, measured.raw).ratio
}

fn heading(report: &Report) -> String {
    let (met, goals) = report.goals();
    if report.simulated {
        return "cuda-core on a SIMULATED driver: the figures mean nothing".to_owned();
    }
    format!("cuda-core beside the raw driver calls: {met} of {goals} goals met")
}

fn head(svg: &mut String, report: &Report) {
    text(svg, MARGIN, 38.0, "title", &heading(report));
    let peers: Vec<String> = table::present(report)
        .map(|peer| format!("{} {}", peer.name, peer.version.as_deref().unwrap_or_default()))
        .collect();
    let mut under = report.driver.clone();
    if !peers.is_empty() {
        under += &format!("; beside it {}", peers.join(", "));
    }
    text(svg, MARGIN, 60.0, "quiet", &under);
    legend(svg, report, 88.0);
    for (x, name) in [(OURS, "ours"), (RAW, "raw"), (BESIDE, "ours / raw")] {
        text(svg, x, HEAD + 4.0, "small quiet end", name);
    }
    text(svg, VERDICT, HEAD + 4.0, "small quiet", "goal");
    text(svg, LEFT, HEAD - 14.0, "small quiet", "\u{2190} faster than raw");
    let slower = "slower than raw \u{2192}";
    text(svg, LEFT + LENGTH, HEAD - 14.0, "small quiet end", slower);
}

fn legend(svg: &mut String, report: &Report, y: f64) {
    let mut x = MARGIN + 6.0;
    let middle = y - 4.5;
    let mut entry = |svg: &mut String, name: &str, draw: &dyn Fn(&mut String, f64)| {
        draw(svg, x);
        text(svg, x + 11.0, y, "", name);
        x += 32.0 + 7.2 * name.chars().count() as f64;
    };
    for (name, verdict) in
        [("goal met", Verdict::Met), ("goal missed", Verdict::Missed), ("no goal", Verdict::NoGoal)]
    {
        entry(svg, name, &|svg, x| marks::ours(svg, Place::Inside(x), middle, verdict));
    }
    entry(svg, "the goal", &|svg, x| marks::goal(svg, x, middle));
    for (index, present) in table::present(report).enumerate() {
        entry(svg, &present.name, &|svg, x| marks::peer(svg, x, middle, index));
    }
    let all = |of: fn(&Many) -> Option<f64>| {
        report.rows.iter().find_map(|row| of(&row.measured()?.many?))
    };
    if all(|many| many.singles).is_some() {
        entry(svg, "each device alone, summed", &|svg, x| marks::singles(svg, x, middle));
    }
    if all(Many::limit).is_some() {
        entry(svg, "link limit", &|svg, x| marks::links(svg, x, middle));
    }
}

fn grid(svg: &mut String, axis: &Axis, bottom: f64) {
    let mut named: Vec<f64> = Vec::new();
    for tick in axis.ticks() {
        let x = axis.place(tick).x();
        let class = if tick == 1.0 { "raw" } else { "grid" };
        let top = HEAD + 10.0;
        let _ = writeln!(
            svg,
            r#"<line class="{class}" x1="{x:.1}" y1="{top}" x2="{x:.1}" y2="{bottom}"/>"#
        );
        if named.iter().any(|other| (other - x).abs() < ROOM) {
            continue;
        }
        named.push(x);
        let name = match tick {
            1.0 => "raw".to_owned(),
            _ => format!("{tick} ×"),
        };
        text(svg, x, HEAD + 4.0, "small quiet middle", &name);
        text(svg, x, bottom + 16.0, "small quiet middle", &name);
    }
}

fn line_of(svg: &mut String, report: &Report, row: &Row, axis: &Axis, y: f64) {
    let base = y + 4.5;
    let _ = writeln!(svg, "<g><title>{}</title>", escape(&tooltip(row)));
    name(svg, base, &row.name);
    match &row.finding {
        Finding::NotRun(_) => {}
        Finding::Failed(why) => {
            let why: String = why.chars().take(90).collect();
            text(svg, LEFT + 8.0, base, "missed", &format!("FAILED: {why}"));
        }
        Finding::Measured(measured) => {
            marks(svg, report, row, measured, axis, y);
            let unit = measured.unit;
            text(svg, OURS, base, "end", &unit.show(measured.ours));
            let raw = measured.raw.map_or("none".to_owned(), |raw| unit.show(raw));
            text(svg, RAW, base, "end quiet", &raw);
            text(svg, BESIDE, base, "end", &table::beside(row));
            let goal = row.goal.describe(measured);
            let goal = if goal.is_empty() { "no goal" } else { &goal };
            text(svg, VERDICT, base, marks::class(row.verdict), goal);
        }
    }
    svg.push_str("</g>\n");
}

/// Writes the name before the axis, compressed if it is too long.
fn name(svg: &mut String, y: f64, name: &str) {
    let x = MARGIN + 8.0;
    if name.chars().count() <= LONGEST {
        return text(svg, x, y, "", name);
    }
    let (room, name) = (LEFT - x - 8.0, escape(name));
    let _ = writeln!(
        svg,
        r#"<text x="{x}" y="{y}" textLength="{room}" lengthAdjust="spacingAndGlyphs">{name}</text>"#
    );
}

fn not_run(svg: &mut String, rows: &[Row], why: &str, y: f64) {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let what = match names[..] {
        [name] => name.to_owned(),
        _ => format!("{} operations", names.len()),
    };
    let _ = writeln!(svg, "<g><title>{}</title>", escape(&names.join("; ")));
    text(svg, MARGIN + 8.0, y + 4.5, "quiet", &what);
    text(svg, LEFT + 8.0, y + 4.5, "quiet", &format!("not run: {why}"));
    svg.push_str("</g>\n");
}

/// The tooltip of a line.
fn tooltip(row: &Row) -> String {
    let mut tooltip = format!("{}: {}", row.name, row.verdict.describe());
    if let Some(measured) = row.measured() {
        let _ = write!(tooltip, ", ours {}", measured.unit.show(measured.ours));
        for (peer, figure) in &row.peers {
            let _ = write!(tooltip, ", {peer} {}", measured.unit.show(*figure));
        }
        let many = measured.many.as_ref();
        if let Some(singles) = many.and_then(|many| many.singles) {
            let _ = write!(tooltip, ", each device alone, summed {}", measured.unit.show(singles));
        }
        if let Some(limit) = many.and_then(Many::limit) {
            let _ = write!(tooltip, ", link limit {}", measured.unit.show(limit));
        }
    }
    tooltip
}

fn marks(svg: &mut String, report: &Report, row: &Row, measured: &Measured, axis: &Axis, y: f64) {
    let Some(ratio) = measured.ratio else {
        let what = match measured.unit {
            Unit::Nanoseconds => "no raw call does the same",
            Unit::Gigabytes | Unit::Millions => "nothing raw to compare it with",
        };
        text(svg, LEFT + 8.0, y + 4.5, "quiet small", what);
        return;
    };
    let place = axis.place(ratio);
    let _ = writeln!(
        svg,
        r#"<line class="bar {}" x1="{:.1}" y1="{y}" x2="{:.1}" y2="{y}"/>"#,
        marks::class(row.verdict),
        axis.place(1.0).x(),
        place.x()
    );
    if let Some(limit) = row.goal.limit(measured) {
        marks::goal(svg, axis.place(limit).x(), y);
    }
    let (singles, links) = beside_many(measured);
    if let Some(multiple) = singles {
        marks::singles(svg, axis.place(multiple).x(), y);
    }
    if let Some(multiple) = links {
        marks::links(svg, axis.place(multiple).x(), y);
    }
    for (index, present) in table::present(report).enumerate() {
        let figure = row.peers.get(&present.name);
        if let Some(multiple) = figure.and_then(|figure| multiple(measured, *figure)) {
            marks::peer(svg, axis.place(multiple).x(), y, index);
        }
    }
    marks::ours(svg, place, y, row.verdict);
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, content: &str) {
    let content = escape(content);
    let _ = writeln!(svg, r#"<text class="{class}" x="{x:.1}" y="{y}">{content}</text>"#);
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::goal::Goal;
    use super::super::report::tests::{many, sample};
    use super::*;

    /// Checks that tags nest, attributes are quoted, and no `<` or `&` is stray.
    fn check(svg: &str) -> Result<(), String> {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some(at) = rest.find(['<', '&', '>']) {
            let from = &rest[at..];
            if let Some(entity) = from.strip_prefix('&') {
                let known = ["amp;", "lt;", "gt;", "quot;"];
                if !known.iter().any(|name| entity.starts_with(name)) {
                    return Err(format!("stray &: {from:.20}"));
                }
                rest = entity;
                continue;
            }
            let end = from.find('>').ok_or("a tag without an end")?;
            let tag = from.get(1..end).ok_or("stray >")?;
            rest = &from[end + 1..];
            if tag.contains('<') || tag.matches('"').count() % 2 != 0 {
                return Err(format!("broken tag: {tag}"));
            }
            if let Some(name) = tag.strip_prefix('/') {
                if open.pop() != Some(name) {
                    return Err(format!("</{name}> closes nothing"));
                }
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap_or_default());
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("open: {open:?}")) }
    }

    #[test]
    fn it_is_well_formed_whatever_names_hold() {
        check(&render(&sample())).unwrap();
        check(&render(&Report::new("no rows".into(), true, 3))).unwrap();
        // A control: the check detects each error.
        for broken in ["<a><b></a></b>", "<a>x & y</a>", "<a>", "<a b=\"></a>", "<a>1 > 0</a>"] {
            assert!(check(broken).is_err(), "{broken}");
        }
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
        // CuPy has one figure, and a place in the legend.
        assert_eq!(svg.matches("class=\"peer peer0\"").count(), 2);
        assert!(!svg.contains("peer1\" d"), "PyTorch is not there");
        assert!(svg.contains("not run: needs 2 devices"));
        assert!(svg.contains("FAILED: out of memory"));
        assert!(svg.contains("3 of 4 goals met"));
    }

    #[test]
    fn sums_and_limits_are_drawn_where_many_devices_are() {
        let mut report = sample();
        assert!(!render(&report).contains("\"many\""));
        report.rows.extend(many());
        let svg = render(&report);
        check(&svg).unwrap();
        let rings = svg.matches("circle class=\"many\"").count();
        let brackets = svg.matches("path class=\"many\"").count();
        // Two rows of each, and the legend.
        assert_eq!((rings, brackets), (3, 3));
        assert!(svg.contains(", each device alone, summed 220 GB/s<"), "{svg}");
        assert!(svg.contains(", link limit 396 GB/s<"), "{svg}");
        let gather = report.rows.iter().find(|row| row.name == "gather").unwrap();
        let (singles, links) = beside_many(gather.measured().unwrap());
        assert_eq!((singles, links), (Some(145.0 / 220.0), None));
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
