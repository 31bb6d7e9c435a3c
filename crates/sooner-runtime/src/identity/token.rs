//! The cluster's one secret: 256 random bits in a file that only its user can read.
//!
//! It is never printed by accident (no `Display`, and `Debug` says nothing of it), never put on a command line, never sent.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BYTES: usize = 32;
/// That of a cluster, and while it is changed the other one.
const TOKENS_MAX: usize = 2;
/// Tells people, and programs that look for leaked secrets, what they have before them.
const PREFIX: &str = "sooner-token-1-";
/// A file of this length at most is read (bytes).
const FILE_BYTES_MAX: u64 = 4096;

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; BYTES]);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// A second cluster would take the place of the first.
    #[error("the token file {0} exists already: use it, or remove it if no cluster needs it any more")]
    Exists(PathBuf),
    /// Nobody made it, or it lies elsewhere.
    #[error("there is no token file {0}: copy it from the head of the cluster (mode 0600)")]
    Missing(PathBuf),
    /// Others could have read or written it.
    #[error(
        "the token file {path} can be read or changed by others (mode {mode:04o}): whoever has it can run code in the \
         cluster. If nobody did, say: chmod 600 {path}; otherwise make another token"
    )]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Whoever owns it could change it.
    #[error("the token file {path} belongs to user {owner}, not to you")]
    NotYours {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A directory, a pipe or the like.
    #[error("the token file {0} is not a file")]
    NotAFile(PathBuf),
    /// What is in it is no token.
    #[error(
        "{0} does not contain a token: sooner-token-1- and 64 hexadecimal digits on a line, or two such lines while the token is changed"
    )]
    Malformed(String),
    /// The system said no.
    #[error("the token file {path} cannot be {what}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's word.
        error: io::Error,
    },
}

impl Token {
    /// A new token.
    ///
    /// # Errors
    /// The system's word when it has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Self(bytes))
    }

    /// Writes the token into a new file with mode 0600.
    ///
    /// # Errors
    /// [`TokenError::Exists`] when there is a file already, which is left alone; [`TokenError::Io`].
    pub fn create(&self, path: &Path) -> Result<(), TokenError> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => TokenError::Exists(path.to_owned()),
            _ => TokenError::Io { path: path.to_owned(), what: "made", error },
        })?;
        let written = writeln!(file, "{}", self.reveal()).and_then(|()| file.sync_all());
        written.map_err(|error| {
            // Half a token would only be in the way of the next try.
            let _ = std::fs::remove_file(path);
            TokenError::Io { path: path.to_owned(), what: "written", error }
        })
    }

    /// Reads a token file: the token with which its reader proves who it is.
    ///
    /// # Errors
    /// [`TokenError`], also when others than the user could have read or changed it.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        Ok(Self::read_all(path)?.remove(0))
    }

    /// Reads a token file: the first line is the token with which its reader proves who it is; another one, while the token is
    /// changed, is believed, too.
    ///
    /// # Errors
    /// As [`Token::read`].
    pub fn read_all(path: &Path) -> Result<Vec<Self>, TokenError> {
        let io = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => TokenError::Missing(path.to_owned()),
            _ => TokenError::Io { path: path.to_owned(), what: "read", error },
        };
        // Opened without waiting: a pipe in the token's place must not hold up a daemon.
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(flags).expect("flags of open"))
            .open(path)
            .map_err(io)?;
        check(&file, path)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(io)?;
        let malformed = || TokenError::Malformed(format!("the token file {}", path.display()));
        let tokens: Result<Vec<Self>, _> = text.trim().lines().map(|line| Self::parse(line.trim())).collect();
        let tokens = tokens.map_err(|_| malformed())?;
        if tokens.is_empty() || tokens.len() > TOKENS_MAX { Err(malformed()) } else { Ok(tokens) }
    }

    /// Puts tokens into the place of what is in a file, whole or not at all.
    ///
    /// # Errors
    /// [`TokenError::Io`].
    pub fn replace(tokens: &[Self], path: &Path) -> Result<(), TokenError> {
        let unfinished = path.with_extension(format!("new-{}", std::process::id()));
        let text: String = tokens.iter().map(|token| token.reveal() + "\n").collect();
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&unfinished, path)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&unfinished);
            TokenError::Io { path: path.to_owned(), what: "written", error }
        })
    }

    /// Reads a token's text, as [`Token::reveal`] gives it.
    ///
    /// # Errors
    /// [`TokenError::Malformed`]; the text is not repeated in it.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let malformed = || TokenError::Malformed("this text".to_owned());
        let digits = text.strip_prefix(PREFIX).ok_or_else(malformed)?;
        if digits.len() != 2 * BYTES || !digits.is_ascii() {
            return Err(malformed());
        }
        let mut bytes = [0; BYTES];
        for (byte, two) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let digit = |at: usize| char::from(two[at]).to_digit(16).ok_or_else(malformed);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).expect("two digits");
        }
        Ok(Self(bytes))
    }

    /// The token as text: a secret, for files and for the eyes of its owner.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.0.iter().fold(PREFIX.to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }

    pub(super) fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// Of the file that is open, not of the path: that may lead elsewhere a moment later.
fn check(file: &File, path: &Path) -> Result<(), TokenError> {
    let path = path.to_owned();
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(error) => return Err(TokenError::Io { path, what: "read", error }),
    };
    if !metadata.is_file() {
        return Err(TokenError::NotAFile(path));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(TokenError::NotYours { path, owner: metadata.uid() });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokenError::Loose { path, mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory that goes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sooner-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).expect("a directory");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_token_file_is_private_and_made_once() {
        let scratch = Scratch::new("token-file");
        let path = scratch.0.join("token");
        let token = Token::generate().expect("random numbers");
        assert!(matches!(Token::read(&path), Err(TokenError::Missing(_))));
        token.create(&path).expect("made");
        let mode = std::fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(Token::read(&path).expect("read"), token);
        let other = Token::generate().expect("random numbers");
        assert!(matches!(other.create(&path), Err(TokenError::Exists(_))));
        assert_eq!(Token::read(&path).expect("read"), token);
    }

    #[test]
    fn a_file_has_two_tokens_while_the_token_is_changed() {
        let scratch = Scratch::new("token-two");
        let path = scratch.0.join("token");
        let tokens: Vec<Token> = (0..3).map(|_| Token::generate().expect("random numbers")).collect();
        tokens[0].create(&path).expect("made");
        for some in [&tokens[..2], &tokens[1..2]] {
            Token::replace(some, &path).expect("written");
            assert_eq!(Token::read_all(&path).expect("read"), some);
            assert_eq!(Token::read(&path).expect("read"), some[0]);
        }
        Token::replace(&tokens, &path).expect("written");
        assert!(matches!(Token::read_all(&path), Err(TokenError::Malformed(_))));
        assert_eq!(std::fs::read_dir(&scratch.0).expect("there").count(), 1);
    }

    #[test]
    fn looser_modes_are_refused_with_a_remedy() {
        let scratch = Scratch::new("token-modes");
        let path = scratch.0.join("token");
        Token::generate().expect("random numbers").create(&path).expect("made");
        for mode in [0o644, 0o640, 0o620, 0o604, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("mine");
            let error = Token::read(&path).expect_err("loose").to_string();
            assert!(error.contains(&format!("{mode:04o}")) && error.contains("chmod 600"), "{error}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).expect("mine");
        Token::read(&path).expect("stricter is fine");
    }

    #[test]
    fn what_is_no_token_is_refused_and_not_repeated() {
        let scratch = Scratch::new("token-malformed");
        let path = scratch.0.join("token");
        let whole = Token::generate().expect("random numbers").reveal();
        for text in
            ["", "secret", &whole[1..], &whole[..whole.len() - 1], &format!("{whole}0"), "sooner-token-1-é"]
        {
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("mine");
            let error = Token::read(&path).expect_err("malformed");
            assert!(matches!(error, TokenError::Malformed(_)), "{error}");
            assert!(text.is_empty() || !error.to_string().contains(text), "{error}");
            assert!(Token::parse(text).is_err());
        }
        assert!(matches!(Token::read(&scratch.0), Err(TokenError::NotAFile(_) | TokenError::Io { .. })));
    }

    #[test]
    fn a_token_does_not_show_itself() {
        let token = Token::generate().expect("random numbers");
        assert_eq!(format!("{token:?}"), "Token(secret)");
        assert_eq!(Token::parse(&token.reveal()).expect("its own text"), token);
    }
}
