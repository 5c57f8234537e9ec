//! Rules for names: what is a usable identifier, and which known name an unknown one resembles.

use strsim::levenshtein;

/// Words that C++17 or Rust 2024 reserves and that match our identifier pattern, plus the names with a fixed meaning
/// in expressions and the arguments of launch functions. Field names become members in both languages.
#[rustfmt::skip]
const RESERVED: &[&str] = &[
    "abstract", "alignas", "alignof", "and", "as", "asm", "async", "auto", "await", "become",
    "bitand", "bitor", "bool", "box", "break", "buffers", "case", "catch", "ceil_div", "char",
    "class", "compl", "const", "constexpr", "continue", "crate", "decltype", "default", "delete",
    "do", "double", "dyn", "else", "enum", "explicit", "export", "extern", "false", "final",
    "float", "fn", "for", "friend", "gen", "goto", "if", "impl", "in", "inline", "int", "let",
    "long", "loop", "macro", "match", "max", "min", "mod", "move", "mut", "mutable", "namespace",
    "new", "noexcept", "not", "nullptr", "operator", "or", "override", "priv", "private",
    "protected", "pub", "public", "push", "queue", "ref", "register", "return", "self", "short",
    "signed", "sizeof", "sm_count", "static", "struct", "super", "switch", "template", "this",
    "throw", "trait", "true", "try", "type", "typedef", "typeid", "typename", "typeof", "union",
    "unsafe", "unsigned", "unsized", "use", "using", "virtual", "void", "volatile", "where",
    "while", "xor", "yield",
];

/// Whether `name` is lower-case snake case, starts with a letter, and is reserved in neither C++ nor Rust.
pub fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !name.contains("__")
        && RESERVED.binary_search(&name).is_err()
}

/// The candidate that differs least from `name`, if it is similar at all.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = name.len() / 3 + 1;
    candidates
        .map(|candidate| (levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_snake_case_and_not_reserved() {
        assert!(RESERVED.is_sorted());
        assert!(is_identifier("dmmv_q4k") && is_identifier("n0"));
        for bad in [
            "", "Dmmv", "4k", "_m", "a-b", "a__b", "class", "type", "max", "sm_count", "ä",
        ] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }

    #[test]
    fn nearest_name_needs_some_similarity() {
        let names = ["vadd", "argmax", "dmmv_q4k"];
        assert_eq!(nearest("vad", names.into_iter()), Some("vadd"));
        assert_eq!(nearest("dmmv_q4_k", names.into_iter()), Some("dmmv_q4k"));
        assert_eq!(nearest("flash_attention", names.into_iter()), None);
    }
}
