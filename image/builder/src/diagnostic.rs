//! What is wrong with a TOML file: the file, the line, the key, and what to write instead.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet, renderer::DecorStyle};
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A TOML file as it was read, kept for messages.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: Arc<str>,
    pub text: Arc<str>,
}

impl Source {
    pub fn read(path: &Path) -> std::io::Result<Self> {
        Ok(Self::new(&path.display().to_string(), &std::fs::read_to_string(path)?))
    }

    pub fn new(path: &str, text: &str) -> Self {
        Source { path: path.into(), text: text.into() }
    }

    /// Reads the text as a `T`; keys that `T` doesn't know are errors.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Diagnostics> {
        let broken = |e: toml::de::Error, key: String| {
            let span = e.span().unwrap_or(0..0);
            let message = e.message().trim_end().replace('\n', ", ");
            Diagnostics(vec![Diagnostic { source: self.clone(), span, key, message }])
        };
        // Where the text is no TOML there is no key yet: what stands there, such as a key that is given twice.
        let at = |e: &toml::de::Error| {
            e.span().and_then(|span| self.text.get(span)).unwrap_or("").trim().to_string()
        };
        let document = toml::Deserializer::parse(&self.text).map_err(|e| {
            let key = at(&e);
            broken(e, key)
        })?;
        serde_path_to_error::deserialize(document).map_err(|e| {
            let key = key_of(e.path());
            broken(e.into_inner(), key)
        })
    }

    pub fn error(
        &self,
        span: Range<usize>,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic { source: self.clone(), span, key: key.into(), message: message.into() }
    }
}

/// `task[2].priority`, without the segments that spanned values add.
fn key_of(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut key = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Seq { index } => key.push_str(&format!("[{index}]")),
            Segment::Map { key: name } if !name.starts_with("$__") => {
                let dot = if key.is_empty() { "" } else { "." };
                key.push_str(&format!("{dot}{name}"));
            }
            _ => {}
        }
    }
    key
}

/// One error.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    pub source: Source,
    /// Bytes of the text.
    pub span: Range<usize>,
    pub key: String,
    pub message: String,
}

impl Diagnostic {
    /// Counted from 1.
    pub fn line(&self) -> usize {
        self.source.text.as_bytes().iter().take(self.span.start).filter(|&&b| b == b'\n').count() + 1
    }

    fn render(&self, renderer: &Renderer) -> String {
        let mark = AnnotationKind::Primary.span(self.span.clone()).label(self.key.as_str());
        let snippet = Snippet::source(&*self.source.text).path(&*self.source.path).annotation(mark);
        renderer.render(&[Level::ERROR.primary_title(self.message.as_str()).element(snippet)])
    }
}

/// All errors that were found in one go; never empty.
#[derive(Clone, Debug)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// As [`fmt::Display`], in colours.
    pub fn styled(&self) -> String {
        self.render(&Renderer::styled())
    }

    fn render(&self, renderer: &Renderer) -> String {
        let renderer = renderer.clone().decor_style(DecorStyle::Ascii);
        self.0.iter().map(|d| d.render(&renderer)).collect::<Vec<_>>().join("\n\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.render(&Renderer::plain()))
    }
}

impl std::error::Error for Diagnostics {}
