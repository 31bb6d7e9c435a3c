//! The cluster's one secret: 256 random bits in a file that only its user can read.
//!
//! It is never printed by accident (no `Display`, and `Debug` hides it), never put on a command line, never
//! sent.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::owned::Directory;
use crate::private::user;

const BYTES: usize = 32;
/// The tokens of a cluster: one, or two while it is being changed.
const TOKENS_MAX: usize = 2;
/// Shows people, and programs that look for leaked secrets, that this is a token.
const PREFIX: &str = "sooner-token-1-";
/// The name of its file in a head's directory.
const NAME: &str = "token";
/// The most bytes read of a token file.
const FILE_BYTES_MAX: u64 = 4096;

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; BYTES]);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file exists: a second cluster would replace the first.
    #[error("the token file {0} exists already: use it, or remove it if no cluster needs it any more")]
    Exists(PathBuf),
    /// The file was never made, or is elsewhere.
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
    /// Another user owns the file and could change it.
    #[error(
        "the token file {path} belongs to {}, not to you: name a file of yours with mode 0600, or put the token into \
         SOONER_TOKEN. If it is yours by right, have it given to you (chown)",
        user(*owner)
    )]
    NotYours {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// A directory, a pipe, a link where none belongs, or the like.
    #[error("the token file {0} is not a file")]
    NotAFile(PathBuf),
    /// Another command is changing the token.
    #[error(
        "the token is being changed already, by a command that runs: say `sooner token` when that has ended"
    )]
    Changing,
    /// The file does not contain a token.
    #[error(
        "{0} does not contain a token: sooner-token-1- and 64 hexadecimal digits on a line, or two such lines while the token is changed"
    )]
    Malformed(String),
    /// The system refused.
    #[error("the token file {path} cannot be {what}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl Token {
    /// A new token.
    ///
    /// # Errors
    /// The system's error when it has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(Self(bytes))
    }

    /// Writes the token into a new file of a head's directory, with mode 0600.
    ///
    /// # Errors
    /// [`TokenError::Exists`] when there is a file already, which is left alone; [`TokenError::Io`].
    pub fn create(&self, directory: &Directory) -> Result<(), TokenError> {
        let path = directory.path().join(NAME);
        let made = directory.open_any(NAME, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL);
        let mut file = made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => TokenError::Exists(path.clone()),
            _ => TokenError::Io { path: path.clone(), what: "made", error },
        })?;
        let written = writeln!(file, "{}", self.reveal()).and_then(|()| file.sync_all());
        written.map_err(|error| {
            // Half a token would be in the way of the next attempt.
            let _ = directory.remove(NAME);
            TokenError::Io { path, what: "written", error }
        })
    }

    /// Reads a token file: the token with which its reader proves who it is.
    ///
    /// # Errors
    /// [`TokenError`], also when other users could have read or changed it.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        Ok(Self::read_all(path)?.remove(0))
    }

    /// Reads a token file. The first line is the token with which its reader proves who it is. While the
    /// token is changed, a second line is accepted, too.
    ///
    /// # Errors
    /// As [`Token::read`].
    pub fn read_all(path: &Path) -> Result<Vec<Self>, TokenError> {
        Self::read_from(&open(path, false)?, path)
    }

    /// Reads the token file of a head's directory; a link in its place is refused.
    ///
    /// # Errors
    /// As [`Token::read`].
    pub fn read_within(directory: &Directory) -> Result<Vec<Self>, TokenError> {
        let path = directory.path().join(NAME);
        let opened = directory.open_any(NAME, OFlags::RDONLY);
        let file = opened.map_err(|error| match directory.look(NAME) {
            Ok(Some(about)) => {
                let is_file = rustix::fs::FileType::from_raw_mode(about.st_mode).is_file();
                unreadable(&path, error, Some((is_file, about.st_uid)))
            }
            Ok(None) | Err(_) => unreadable(&path, error, None),
        })?;
        check(&file, &path)?;
        Self::read_from(&file, &path)
    }

    /// Reads the tokens in a file that is to be changed, and keeps others from changing it until the returned
    /// file is dropped.
    ///
    /// # Errors
    /// [`TokenError::Changing`] when another process is changing it; as [`Token::read`].
    pub fn hold(path: &Path) -> Result<(Vec<Self>, File), TokenError> {
        loop {
            let file = open(path, true)?;
            lock(&file, path)?;
            // The process before may have replaced the file between our opening and our lock.
            let is_there = std::fs::metadata(path)
                .is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
            if is_there {
                return Ok((Self::read_from(&file, path)?, file));
            }
        }
    }

    /// Replaces the tokens in a file, whole or not at all. Returns the new file, locked as by
    /// [`Token::hold`].
    ///
    /// # Errors
    /// [`TokenError::Io`].
    pub fn replace(tokens: &[Self], path: &Path) -> Result<File, TokenError> {
        let unfinished = path.with_extension(format!("new-{}", std::process::id()));
        let text: String = tokens.iter().map(|token| token.reveal() + "\n").collect();
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            // Locked before it can be found.
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            std::fs::rename(&unfinished, path)?;
            Ok(file)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&unfinished);
            TokenError::Io { path: path.to_owned(), what: "written", error }
        })
    }

    fn read_from(file: &File, path: &Path) -> Result<Vec<Self>, TokenError> {
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| TokenError::Io { path: path.to_owned(), what: "read", error })?;
        let malformed = || TokenError::Malformed(format!("the token file {}", path.display()));
        let tokens: Result<Vec<Self>, _> = text.trim().lines().map(|line| Self::parse(line.trim())).collect();
        let tokens = tokens.map_err(|_| malformed())?;
        if tokens.is_empty() || tokens.len() > TOKENS_MAX { Err(malformed()) } else { Ok(tokens) }
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

/// Opens a token file whose path was given; to be locked, too, if it is to be `changed`.
fn open(path: &Path, changed: bool) -> Result<File, TokenError> {
    // Opened without blocking: a pipe in the token's place must not hold up a daemon.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("flags of open");
    let open = |write: bool| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    // Some network file systems lock only files that are open for writing.
    let opened = if changed { open(true).or_else(|_| open(false)) } else { open(false) };
    let file = opened.map_err(|error| {
        let about = std::fs::metadata(path).ok();
        unreadable(path, error, about.map(|about| (about.is_file(), about.uid())))
    })?;
    check(&file, path)?;
    Ok(file)
}

/// Why a token file cannot be opened. `there` is what is known of the entry: whether it is a file, and its
/// owner.
fn unreadable(path: &Path, error: io::Error, there: Option<(bool, u32)>) -> TokenError {
    let path = path.to_owned();
    let own = rustix::process::geteuid().as_raw();
    match there {
        _ if error.kind() == io::ErrorKind::NotFound => TokenError::Missing(path),
        Some((false, _)) => TokenError::NotAFile(path),
        Some((true, owner)) if owner != own && error.kind() == io::ErrorKind::PermissionDenied => {
            TokenError::NotYours { path, owner }
        }
        _ => TokenError::Io { path, what: "read", error },
    }
}

fn lock(file: &File, path: &Path) -> Result<(), TokenError> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => TokenError::Changing,
        error => TokenError::Io { path: path.to_owned(), what: "locked", error: error.into() },
    })
}

/// Checks the open file, not the path, which may lead elsewhere a moment later.
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
    use crate::scratch::Scratch;
    use std::os::unix::fs::PermissionsExt;

    fn directory(scratch: &Scratch) -> Directory {
        Directory::open(&scratch.0).expect("ours")
    }

    #[test]
    fn a_token_file_is_private_and_made_once() {
        let scratch = Scratch::new("token-file");
        let (path, directory) = (scratch.0.join("token"), directory(&scratch));
        let token = Token::generate().expect("random numbers");
        assert!(matches!(Token::read(&path), Err(TokenError::Missing(_))));
        assert!(matches!(Token::read_within(&directory), Err(TokenError::Missing(_))));
        token.create(&directory).expect("made");
        let mode = std::fs::metadata(&path).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(Token::read(&path).expect("read"), token);
        let other = Token::generate().expect("random numbers");
        assert!(matches!(other.create(&directory), Err(TokenError::Exists(_))));
        assert_eq!(Token::read(&path).expect("read"), token);
        assert_eq!(Token::read_within(&directory).expect("read"), [token]);
        // Links are for those who name a file themselves.
        std::fs::rename(&path, scratch.0.join("elsewhere")).expect("moved");
        std::os::unix::fs::symlink("elsewhere", &path).expect("a link");
        Token::read(&path).expect("named");
        assert!(matches!(Token::read_within(&directory), Err(TokenError::NotAFile(_))));
    }

    #[test]
    fn a_file_has_two_tokens_while_the_token_is_changed() {
        let scratch = Scratch::new("token-two");
        let path = scratch.0.join("token");
        let tokens: Vec<Token> = (0..3).map(|_| Token::generate().expect("random numbers")).collect();
        tokens[0].create(&directory(&scratch)).expect("made");
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
    fn one_changes_a_file_at_a_time() {
        let scratch = Scratch::new("token-held");
        let path = scratch.0.join("token");
        let token = Token::generate().expect("random numbers");
        token.create(&directory(&scratch)).expect("made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).expect("mine");
        let is_held = || matches!(Token::hold(&path), Err(TokenError::Changing));
        let (tokens, first) = Token::hold(&path).expect("nobody has it");
        assert_eq!(tokens, [token]);
        assert!(is_held());
        let second = Token::replace(&tokens, &path).expect("written");
        drop(first);
        assert!(is_held(), "what has its name by now, too");
        assert_eq!(Token::read_all(&path).expect("others may read it"), tokens);
        drop(second);
        assert!(!is_held());
    }

    #[test]
    fn looser_modes_are_refused_with_a_remedy() {
        let scratch = Scratch::new("token-modes");
        let path = scratch.0.join("token");
        Token::generate().expect("random numbers").create(&directory(&scratch)).expect("made");
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
