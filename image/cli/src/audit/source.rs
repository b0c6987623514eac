//! How much of a crate's source is `unsafe`: by its tokens, so that macros count too; tests don't.

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use serde::Serialize;
use std::path::Path;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub blocks: usize,
    pub functions: usize,
    pub impls: usize,
    /// The compiler refuses any of it (`#![forbid(unsafe_code)]` in `lib.rs`).
    pub forbidden: bool,
}

/// All `.rs` files below `folder`.
pub fn count(folder: &Path) -> Result<Count> {
    let mut count = Count::default();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            let inner = self::count(&path)?;
            count.blocks += inner.blocks;
            count.functions += inner.functions;
            count.impls += inner.impls;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let tokens: TokenStream = text.parse().map_err(|e| anyhow!("{}: {e}", path.display()))?;
            walk(tokens, &mut count);
            let forbids = text.contains("#![forbid(unsafe_code)]");
            count.forbidden |= forbids && path.file_name().is_some_and(|n| n == "lib.rs");
        }
    }
    Ok(count)
}

fn walk(tokens: TokenStream, count: &mut Count) {
    let mut tokens = tokens.into_iter().peekable();
    // Inside an item that is for tests only, up to its body or its semicolon.
    let mut test = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Bracket && is_test(&group.stream()) =>
            {
                test = true
            }
            TokenTree::Group(group) if test => test = group.delimiter() != Delimiter::Brace,
            TokenTree::Group(group) => walk(group.stream(), count),
            TokenTree::Punct(p) if p.as_char() == ';' => test = false,
            TokenTree::Ident(word) if word == "unsafe" && !test => match tokens.peek() {
                Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => count.blocks += 1,
                Some(TokenTree::Ident(next)) if next == "fn" || next == "extern" => count.functions += 1,
                Some(TokenTree::Ident(next)) if next == "impl" || next == "trait" => count.impls += 1,
                _ => {}
            },
            _ => {}
        }
    }
}

/// The inside of `#[cfg(test)]`, `#[cfg(all(test, ...))]` or `#[test]`.
fn is_test(attribute: &TokenStream) -> bool {
    let text = attribute.to_string().replace(' ', "");
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(source: &str) -> (usize, usize, usize) {
        let mut count = Count::default();
        walk(source.parse().unwrap(), &mut count);
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
}
