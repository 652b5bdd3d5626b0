//! Marks on the axis.

use std::fmt::Write as _;

use super::Place;
use crate::bench::report::Verdict;

pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed | Verdict::Failed => "missed",
        Verdict::NoGoal | Verdict::NotRun => "none",
    }
}

/// The safe layer's mark: a dot, a cross if the goal was missed, an arrow if it lies off the axis.
pub(super) fn ours(svg: &mut String, place: Place, y: f64, verdict: Verdict) {
    let class = class(verdict);
    let x = place.x();
    let _ = match place {
        Place::Left(_) => writeln!(svg, r#"<path class="{class}" d="M{x:.1} {y}l9 -6v12z"/>"#),
        Place::Right(_) => writeln!(svg, r#"<path class="{class}" d="M{x:.1} {y}l-9 -6v12z"/>"#),
        Place::Inside(_) if verdict == Verdict::Missed => writeln!(
            svg,
            r#"<path class="{class}" d="M{x:.1} {y}m-6 -4l2 -2l4 4l4 -4l2 2l-4 4l4 4l-2 2l-4 -4l-4 4l-2 -2l4 -4z"/>"#
        ),
        Place::Inside(_) => {
            writeln!(svg, r#"<circle class="{class}" cx="{x:.1}" cy="{y}" r="5.5"/>"#)
        }
    };
}

/// The goal: a bar across.
pub(super) fn goal(svg: &mut String, x: f64, y: f64) {
    let (top, bottom) = (y - 8.0, y + 8.0);
    let _ =
        writeln!(svg, r#"<line class="goal" x1="{x:.1}" y1="{top}" x2="{x:.1}" y2="{bottom}"/>"#);
}

/// A peer's mark: each has its own shape and colour.
pub(super) fn peer(svg: &mut String, x: f64, y: f64, index: usize) {
    let shape = match index {
        0 => "m0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
        1 => "m0 -5l5 9h-10z",
        _ => "m-4 -4h8v8h-8z",
    };
    let index = index.min(2);
    let _ = writeln!(svg, r#"<path class="peer peer{index}" d="M{x:.1} {y}{shape}"/>"#);
}

/// The sum of what devices reach alone: a ring.
pub(super) fn singles(svg: &mut String, x: f64, y: f64) {
    let _ = writeln!(svg, r#"<circle class="many" cx="{x:.1}" cy="{y}" r="4.5"/>"#);
}

/// The limit of the links: a bracket.
pub(super) fn links(svg: &mut String, x: f64, y: f64) {
    let _ = writeln!(svg, r#"<path class="many" d="M{x:.1} {y}m4 -7h-4v14h4"/>"#);
}
