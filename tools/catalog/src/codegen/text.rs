//! Small text helpers that several outputs share.

/// `dmmv_q8_0_moe` as `DmmvQ8_0Moe`: an underscore stays where it separates two digits, so that names stay distinct.
pub fn camel_case(name: &str) -> String {
    let mut out = String::new();
    for part in name.split('_') {
        let mut chars = part.chars();
        let Some(first) = chars.next() else { continue };
        if first.is_ascii_digit() && out.ends_with(|c: char| c.is_ascii_digit()) {
            out.push('_');
        }
        out.push(first.to_ascii_uppercase());
        out.push_str(chars.as_str());
    }
    out
}

/// Makes plain text safe for Markdown: no links, tags, emphasis or code spans arise from it.
pub fn escape_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '[' | ']' | '<' | '>' | '*' | '`' | '|' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Every line of `text` after `prefix`, without trailing spaces.
pub fn prefixed(prefix: &str, text: &str) -> String {
    let line = |line: &str| format!("{prefix}{line}").trim_end().to_owned() + "\n";
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_keeps_names_distinct() {
        assert_eq!(camel_case("vadd"), "Vadd");
        assert_eq!(camel_case("dmmv_q4k"), "DmmvQ4k");
        assert_eq!(camel_case("dmmv_q8_0_q8_1"), "DmmvQ8_0Q8_1");
        assert_ne!(camel_case("dmmv_q8_0"), camel_case("dmmv_q80"));
    }

    #[test]
    fn escaped_text_has_no_markup() {
        assert_eq!(
            escape_markdown("[n] <k> a*b `c` x|y"),
            r"\[n\] \<k\> a\*b \`c\` x\|y"
        );
    }
}
