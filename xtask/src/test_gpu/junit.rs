//! The report for continuous-integration services: one suite per row.

use std::fmt::Write;

use super::result::{Matrix, RowResult, Status};

/// The whole matrix.
pub(crate) fn report(matrix: &Matrix) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for row in &matrix.rows {
        suite(&mut xml, row);
    }
    xml += "</testsuites>\n";
    xml
}

fn suite(xml: &mut String, row: &RowResult) {
    let name = escape(&row.name);
    if let Status::NotRun(reason) = &row.status {
        let reason = escape(reason);
        *xml += &format!(
            "  <testsuite name=\"{name}\" tests=\"1\" failures=\"0\" skipped=\"1\">\n    \
             <testcase classname=\"{name}\" name=\"row\"><skipped message=\"{reason}\"/></testcase>\n  \
             </testsuite>\n"
        );
        return;
    }
    let tests = row.tests.len() + row.left_out.len() + row.complaints.len();
    let failures =
        row.tests.iter().filter(|test| test.failure.is_some()).count() + row.complaints.len();
    *xml += &format!(
        "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" \
         skipped=\"{}\" time=\"{:.3}\">\n",
        row.left_out.len(),
        row.seconds
    );
    for test in &row.tests {
        let (class, title) = (escape(&test.suite), escape(&test.name));
        *xml += &format!(
            "    <testcase classname=\"{name}.{class}\" name=\"{title}\" time=\"{:.3}\"",
            test.seconds
        );
        match &test.failure {
            None => *xml += "/>\n",
            Some(output) => failure(xml, output),
        }
    }
    for left_out in &row.left_out {
        let (class, title) = (escape(&left_out.suite), escape(&left_out.test));
        let reason = escape(&left_out.reason);
        *xml += &format!(
            "    <testcase classname=\"{name}.{class}\" name=\"{title}\">\
             <skipped message=\"{reason}\"/></testcase>\n"
        );
    }
    for complaint in &row.complaints {
        *xml += &format!("    <testcase classname=\"{name}\" name=\"process\"");
        failure(xml, complaint);
    }
    if !row.notes.is_empty() {
        let notes = escape(&row.notes.join("\n"));
        *xml += &format!("    <system-out>{notes}</system-out>\n");
    }
    *xml += "  </testsuite>\n";
}

fn failure(xml: &mut String, output: &str) {
    let first = escape(output.lines().find(|line| !line.is_empty()).unwrap_or("failed"));
    let _ = writeln!(xml, "><failure message=\"{first}\">{}</failure></testcase>", escape(output));
}

/// XML cannot represent most control characters, so they are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(character),
            _ if character.is_control() => escaped.push('\u{FFFD}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escape("a < b && \"c\"\u{1b}[0m\n"),
            "a &lt; b &amp;&amp; &quot;c&quot;\u{FFFD}[0m\n"
        );
    }
}
