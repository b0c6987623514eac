//! How long a crate's source is, and how much of it is `unsafe`: by its tokens, so that macros count too. Comments, blank lines,
//! and what is for tests only don't.

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Lines that hold code.
    pub lines: usize,
    #[serde(rename = "unsafe")]
    pub unsafe_code: Unsafe,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unsafe {
    pub blocks: usize,
    pub functions: usize,
    pub impls: usize,
    /// The compiler refuses any of it (`#![forbid(unsafe_code)]` in `lib.rs`).
    pub forbidden: bool,
}

/// All `.rs` files below `folder`, but those of modules for tests.
pub fn count(folder: &Path) -> Result<Count> {
    let mut files = Vec::new();
    read(folder, &mut files)?;
    let tests: Vec<PathBuf> = files.iter().flat_map(|(path, found)| found.test_files(path)).collect();
    let mut sum = Count::default();
    for (path, found) in &files {
        if tests.iter().any(|test| path.starts_with(test) || path.with_extension("") == *test) {
            continue;
        }
        sum.lines += found.lines.len();
        sum.unsafe_code.blocks += found.unsafe_code.blocks;
        sum.unsafe_code.functions += found.unsafe_code.functions;
        sum.unsafe_code.impls += found.unsafe_code.impls;
        sum.unsafe_code.forbidden |= found.unsafe_code.forbidden;
    }
    Ok(sum)
}

fn read(folder: &Path, files: &mut Vec<(PathBuf, Found)>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let tokens: TokenStream = text.parse().map_err(|e| anyhow!("{}: {e}", path.display()))?;
            let mut found = Found::default();
            found.walk(tokens);
            let forbids = text.contains("#![forbid(unsafe_code)]");
            found.unsafe_code.forbidden = forbids && path.file_name().is_some_and(|n| n == "lib.rs");
            files.push((path, found));
        }
    }
    Ok(())
}

/// What one file holds.
#[derive(Default)]
struct Found {
    lines: BTreeSet<usize>,
    unsafe_code: Unsafe,
    /// Modules for tests whose source is elsewhere.
    tests: Vec<String>,
}

impl Found {
    /// Where the modules for tests are, without the extension: `NAME.rs` or all that is in `NAME/`.
    fn test_files(&self, path: &Path) -> Vec<PathBuf> {
        let stem = path.file_stem().unwrap_or_default();
        let beside = ["lib", "main", "mod"].iter().any(|root| stem == *root);
        let base = if beside { path.parent().unwrap_or(path).to_owned() } else { path.with_extension("") };
        self.tests.iter().map(|name| base.join(name)).collect()
    }

    fn walk(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        // Inside an item that is for tests only, up to its body or its semicolon.
        let mut test = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(p) if p.as_char() == '#' => {
                    let inner = tokens.next_if(|t| matches!(t, TokenTree::Punct(p) if p.as_char() == '!'));
                    let Some(TokenTree::Group(attribute)) =
                        tokens.next_if(|t| matches!(t, TokenTree::Group(_)))
                    else {
                        continue;
                    };
                    match kind(&attribute) {
                        Attribute::Comment => {}
                        Attribute::Test if inner.is_none() => test = true,
                        _ if !test => self.code(TokenTree::Group(attribute)),
                        _ => {}
                    }
                }
                TokenTree::Ident(word) if word == "mod" && test => {
                    if let Some(TokenTree::Ident(name)) = tokens.next()
                        && matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == ';')
                    {
                        self.tests.push(name.to_string());
                    }
                }
                TokenTree::Group(group) if test => test = group.delimiter() != Delimiter::Brace,
                TokenTree::Punct(p) if p.as_char() == ';' && test => test = false,
                _ if test => {}
                TokenTree::Ident(word) if word == "unsafe" => {
                    self.note(tokens.peek());
                    self.code(TokenTree::Ident(word));
                }
                token => self.code(token),
            }
        }
    }

    /// A token that counts.
    fn code(&mut self, token: TokenTree) {
        match token {
            TokenTree::Group(group) => {
                // A group without delimiters has no lines of its own.
                if group.delimiter() != Delimiter::None {
                    self.lines.insert(group.span_open().start().line);
                    self.lines.insert(group.span_close().end().line);
                }
                self.walk(group.stream());
            }
            token => self.lines.extend(token.span().start().line..=token.span().end().line),
        }
    }

    /// The word `unsafe`, and what follows it.
    fn note(&mut self, next: Option<&TokenTree>) {
        let count = &mut self.unsafe_code;
        match next {
            Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => count.blocks += 1,
            Some(TokenTree::Ident(next)) if next == "fn" || next == "extern" => count.functions += 1,
            Some(TokenTree::Ident(next)) if next == "impl" || next == "trait" => count.impls += 1,
            _ => {}
        }
    }
}

#[derive(PartialEq)]
enum Attribute {
    Comment,
    /// Of an item that is in no image: `#[test]`, `#[cfg(test)]`, and with conditions.
    Test,
    Other,
}

fn kind(attribute: &Group) -> Attribute {
    let text = attribute.stream().to_string().replace(' ', "");
    let tests = ["cfg(all(test,", "cfg(any(test,feature=\"testing\"))"];
    if text.starts_with("doc=") {
        Attribute::Comment
    } else if text == "test" || text == "cfg(test)" || tests.iter().any(|t| text.starts_with(t)) {
        Attribute::Test
    } else {
        Attribute::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Found {
        let mut found = Found::default();
        found.walk(source.parse().unwrap());
        found
    }

    fn counted(source: &str) -> (usize, usize, usize) {
        let count = found(source).unsafe_code;
        (count.blocks, count.functions, count.impls)
    }

    #[test]
    fn blocks_functions_and_impls_count() {
        assert_eq!(counted("unsafe fn f() { unsafe { g() } } unsafe impl Send for T {}"), (1, 1, 1));
        assert_eq!(counted("m!(x, unsafe { 1 }); // unsafe { }\nlet s = \"unsafe {}\";"), (1, 0, 0));
    }

    #[test]
    fn tests_dont_count() {
        assert_eq!(
            counted("#[cfg(test)] mod tests { fn f() { unsafe { 1 } } } fn g() { unsafe { 2 } }"),
            (1, 0, 0)
        );
        assert_eq!(counted("#[cfg(test)] use a::b; fn g() { unsafe { 2 } }"), (1, 0, 0));
    }

    #[test]
    fn lines_hold_code() {
        let source = "//! A crate.\n\n/// Says so.\nfn f() {\n    // Why.\n    g(\n        \"two\n lines\",\n    );\n}\n";
        assert_eq!(found(source).lines.into_iter().collect::<Vec<_>>(), [4, 6, 7, 8, 9, 10]);
        assert_eq!(found("#[derive(Debug)]\nstruct S;\n#[cfg(test)]\nmod tests {\n}\n").lines.len(), 2);
    }

    #[test]
    fn files_of_tests_are_known() {
        let found = found(
            "#[cfg(test)]\nmod tests;\n#[cfg(any(test, feature = \"testing\"))]\npub mod fuzz;\nmod a;",
        );
        assert_eq!(
            found.test_files(Path::new("src/lib.rs")),
            [Path::new("src/tests"), Path::new("src/fuzz")]
        );
        assert_eq!(
            found.test_files(Path::new("src/codec.rs")),
            [Path::new("src/codec/tests"), Path::new("src/codec/fuzz")]
        );
    }
}
