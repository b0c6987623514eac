//! The kernel's command line: the package's signed one, and of the unsigned one that firmware gives only words known here.

/// Words that change what is shown or measured, never what is allowed.
pub const BOOT_WORDS: [&str; 1] = ["diag"];

/// The boot words in a line that anybody may have written, each once.
pub fn allowed(line: &[u8]) -> impl Iterator<Item = &'static str> + '_ {
    let separator = |b: &u8| !b.is_ascii_graphic();
    BOOT_WORDS.into_iter().filter(move |word| line.split(separator).any(|w| w == word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_pass() {
        let pass = |line: &[u8]| allowed(line).collect::<Vec<_>>();
        assert_eq!(pass(b"loader diag\0"), ["diag"]);
        assert_eq!(pass(b"diag quiet diag init=/bin/sh"), ["diag"]);
        assert_eq!(pass(b"diagnose Diag xdiag diag=1"), [""; 0]);
        assert_eq!(pass(b"\xff\xfediag\n\xff"), ["diag"]);
        assert_eq!(pass(b""), [""; 0]);
    }
}
