//! The signed package: see `docs/package.md`.
