//! Where bytes that others write come into a service, and which function reads them first: a table in the service's Cargo.toml,
//! whose functions are looked up in the source, so that it can't name one that is gone.

use anyhow::{Context, Result, anyhow, bail};
use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// A link (`NAME.*`: all that begin so), a region, or `serial`.
    pub on: String,
    /// Who writes them.
    pub from: String,
    /// What they are.
    pub bytes: String,
    /// `crate::module::function` or `crate::module::Type::function`.
    pub parser: String,
    /// File and line of that.
    #[serde(skip_deserializing)]
    pub at: String,
}

impl Input {
    /// Fills in `at`. `folder` knows where a crate's source is.
    pub fn locate(mut self, folder: &dyn Fn(&str) -> Option<PathBuf>) -> Result<Self> {
        let mut path = self.parser.split("::");
        let name = path.next().unwrap_or_default();
        let folder = folder(name).with_context(|| format!("{}: there is no crate {name}", self.parser))?;
        let (file, line) = find(&folder, &path.collect::<Vec<_>>()).context(self.parser.clone())?;
        self.at = format!("{}:{line}", file.display());
        Ok(self)
    }
}

/// File and line of the function: the longest part of the path that is a file, and the rest in there.
fn find(folder: &Path, path: &[&str]) -> Result<(PathBuf, usize)> {
    for modules in (0..path.len()).rev() {
        let module = path[..modules].iter().fold(folder.to_owned(), |at, name| at.join(name));
        let names: &[&str] = if modules == 0 { &["lib.rs", "main.rs"] } else { &["mod.rs"] };
        let mut files: Vec<PathBuf> = names.iter().map(|name| module.join(name)).collect();
        files.push(module.with_extension("rs"));
        for file in files.iter().filter(|f| f.is_file()) {
            let text = std::fs::read_to_string(file)?;
            let tokens = text.parse().map_err(|e| anyhow!("{}: {e}", file.display()))?;
            if let Some(line) = line_of(tokens, &path[modules..]) {
                return Ok((file.clone(), line));
            }
        }
    }
    bail!("there is no such function below {}", folder.display())
}

/// `names`: a function, or a type and its function; in modules inside of the file too.
fn line_of(tokens: TokenStream, names: &[&str]) -> Option<usize> {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "impl" => {
                let (of, body) = block(&mut tokens);
                if let ([kind, function], Some(of), Some(body)) = (names, of, body)
                    && of == kind
                    && let Some(line) = line_of(body.stream(), &[function])
                {
                    return Some(line);
                }
            }
            TokenTree::Ident(word) if word == "fn" => {
                if let ([name], Some(TokenTree::Ident(found))) = (names, tokens.peek())
                    && found == name
                {
                    return Some(found.span().start().line);
                }
            }
            // A module inside of the file, after its name.
            TokenTree::Ident(word) if word == "mod" => {
                tokens.next();
                if let Some(TokenTree::Group(body)) = tokens.peek()
                    && let Some(line) = line_of(body.stream(), names)
                {
                    return Some(line);
                }
            }
            _ => {}
        }
    }
    None
}

/// What follows `impl`: the type's name, which is the last one that is no parameter of something, and the body.
fn block(tokens: &mut impl Iterator<Item = TokenTree>) -> (Option<Ident>, Option<Group>) {
    let (mut depth, mut arrow, mut of, mut bounds) = (0, false, None, false);
    for token in tokens {
        match token {
            TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => return (of, Some(body)),
            TokenTree::Punct(p) => {
                match p.as_char() {
                    '<' => depth += 1,
                    // Not the one of `->`.
                    '>' if !arrow => depth -= 1,
                    _ => {}
                }
                arrow = p.as_char() == '-';
            }
            TokenTree::Ident(word) if word == "where" => bounds = true,
            TokenTree::Ident(word) if depth == 0 && !bounds => of = Some(word),
            _ => {}
        }
    }
    (of, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_where_they_are() {
        let source = "fn a() {}
            struct T<X>(X);
            impl<'x, X: Fn() -> u8> T<X>
            where X: Copy {
                fn b() { fn hidden() {} }
            }
            mod m {
                impl Read for T<u8> { fn c() {} }
            }";
        let line = |names: &[&str]| line_of(source.parse().unwrap(), names);
        assert_eq!(line(&["a"]), Some(1));
        assert_eq!(line(&["T", "b"]), Some(5));
        assert_eq!(line(&["T", "c"]), Some(8));
        assert_eq!(line(&["b"]), None);
        assert_eq!(line(&["hidden"]), None);
        assert_eq!(line(&["U", "b"]), None);
    }
}
