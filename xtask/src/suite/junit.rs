//! The JUnit report for continuous-integration services: one suite per row.

use super::report::{LeftOut, Row, Status, Test};
use crate::xml::escape;

/// Formats all rows.
pub(crate) fn report<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let suites: String = rows.into_iter().map(suite).collect();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{suites}</testsuites>\n")
}

fn suite(row: &Row) -> String {
    let name = &row.name;
    let mut cases = String::new();
    for Test { suite, name: test, seconds, failure: output } in &row.tests {
        let result = output.as_deref().map(failure);
        cases += &case(&format!("{name}.{suite}"), test, *seconds, result);
    }
    for LeftOut { suite, test, reason } in &row.left_out {
        cases += &case(&format!("{name}.{suite}"), test, 0.0, Some(skipped(reason)));
    }
    for complaint in &row.complaints {
        cases += &case(name, "process", 0.0, Some(failure(complaint)));
    }
    if let Status::NotRun(reason) = &row.status {
        cases += &case(name, "row", 0.0, Some(skipped(reason)));
    }
    if !row.notes.is_empty() {
        let notes = escape(&row.notes.join("\n"));
        cases += &format!("    <system-out>{notes}</system-out>\n");
    }
    format!(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.3}\">\n\
         {cases}  </testsuite>\n",
        escape(name),
        cases.matches("<testcase ").count(),
        row.failed(),
        cases.matches("<skipped ").count(),
        row.seconds,
    )
}

fn case(class: &str, name: &str, seconds: f64, result: Option<String>) -> String {
    let (class, name, result) = (escape(class), escape(name), result.unwrap_or_default());
    format!(
        "    <testcase classname=\"{class}\" name=\"{name}\" time=\"{seconds:.3}\">{result}</testcase>\n"
    )
}

fn skipped(reason: &str) -> String {
    format!("<skipped message=\"{}\"/>", escape(reason))
}

fn failure(output: &str) -> String {
    let first = output.lines().find(|line| !line.is_empty());
    let (first, output) = (escape(first.unwrap_or("failed")), escape(output));
    format!("<failure message=\"{first}\">{output}</failure>")
}

#[cfg(test)]
mod tests {
    use super::super::{Finished, Run};
    use super::*;

    #[test]
    fn all_that_happened_is_counted() {
        let mut row = Row::new("1-\"default\"");
        row.add(
            "gpu",
            Run {
                finished: vec![Finished::lost("a", "it <vanished>")],
                complaint: Some("a leak".into()),
                notes: vec!["a figure".into()],
            },
        );
        row.leave_out("gpu", "b", "needs 2 devices");
        let text = report(&[row]);
        let suite = r#"name="1-&quot;default&quot;" tests="3" failures="2" skipped="1""#;
        assert!(text.contains(suite), "{text}");
        assert!(
            text.contains("message=\"it &lt;vanished&gt;\">it &lt;vanished&gt;</failure>"),
            "{text}"
        );
        assert!(text.contains("<system-out>a figure</system-out>"), "{text}");
    }
}
