//! How a daemon joins a cluster: its token, its address, and the head's.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sooner_wire::NodeId;

use crate::control::service::State;
use crate::identity::{Authority, Bearer, Credentials, Identity, Token, TokenError};
use crate::node::cluster::fate::{Fate, JoinFailure, Kind};
use crate::node::cluster::{ClusterOptions, Head, address_towards};
use crate::owned::{Directory, Fault};
use crate::transport::TlsFailure;

/// The options of a daemon that concern its cluster.
#[derive(Debug, Default)]
pub struct Membership {
    /// Where a head keeps what outlives it, and where the token of a cluster on this machine is.
    pub directory: PathBuf,
    /// The head to join; a head has none.
    pub head: Option<String>,
    /// Address to listen on.
    pub host: Option<String>,
    /// Port to listen on.
    pub port: Option<u16>,
    /// The token itself, if one was given: used unless a file is named.
    pub token: Option<GivenToken>,
    /// The file with the token; in the directory by default.
    pub token_file: Option<PathBuf>,
    /// Silence after which a node counts as dead (nanoseconds): set by the head.
    pub health_timeout: u64,
    /// Nodes of this machine may read values in this node's memory, and this node in theirs.
    pub shares_memory: bool,
}

/// A token's text from outside. `Debug` does not show it.
#[derive(Default)]
pub struct GivenToken(pub String);

impl fmt::Debug for GivenToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenToken(secret)")
    }
}

/// Why a daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node may not join.
    #[error(transparent)]
    Join(#[from] JoinFailure),
    /// Anything else.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<TokenError> for StartError {
    fn from(error: TokenError) -> Self {
        let text = match &error {
            TokenError::Missing(path) => format!(
                "no token: {} is not there. Copy the file `token` from the head's cluster directory (mode 0600) and name it with --token-file, or put what `sooner token` prints there into SOONER_TOKEN",
                path.display()
            ),
            other => other.to_string(),
        };
        Self::Join(JoinFailure::new(Kind::Token, text))
    }
}

impl Membership {
    /// The file with the token.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.token_file.clone().unwrap_or_else(|| self.directory.join("token"))
    }

    /// What a node needs to take part, and what changes its credentials when the token is changed. `runtime`
    /// is the directory above those of this user's nodes.
    ///
    /// # Errors
    /// [`StartError`], with its exit status.
    pub fn options(&self, node: NodeId, runtime: &Path) -> Result<(ClusterOptions, Renewal), StartError> {
        match &self.head {
            None => self.of_head(node, runtime),
            Some(head) => self.of_member(node, head),
        }
    }

    fn of_head(&self, node: NodeId, runtime: &Path) -> Result<(ClusterOptions, Renewal), StartError> {
        let directory = make_private(&self.directory, runtime)?;
        let state = State::open(&self.directory, node.0).map_err(io::Error::other)?;
        let tokens = self.tokens_of_head(&directory)?;
        let host = self.host()?.unwrap_or(Ipv4Addr::LOCALHOST.into());
        // Nodes of an earlier head look for this one at its address.
        let former = state.expects_nodes().then(|| state.address()).flatten();
        let port = self.port.or(former.map(|address| address.port())).unwrap_or(0);
        let head = Head::Here { state: Box::new(state), health_timeout: self.health_timeout };
        let workers = credentials(node, Bearer::Node, &tokens);
        let identity = Identity::new(&credentials(node, Bearer::Head, &tokens)).map_err(io::Error::other)?;
        let options = ClusterOptions {
            identity,
            workers,
            listen: Some(SocketAddr::new(host, port)),
            head,
            fate: Arc::new(Fate::default()),
            shares_memory: self.shares_memory,
        };
        Ok((options, self.renewal(node, Bearer::Head, tokens)))
    }

    /// The cluster's token, and a second one while it is changed; made if this is the first head.
    fn tokens_of_head(&self, directory: &Directory) -> Result<Vec<Token>, StartError> {
        let path = self.token_file();
        let tokens = match &self.token_file {
            Some(named) => Token::read_all(named),
            None => Token::read_within(directory),
        };
        let wanted = match &self.token {
            Some(text) if self.token_file.is_none() => Some(given(text)?),
            _ => None,
        };
        match (tokens, wanted) {
            (Ok(tokens), Some(wanted)) if !tokens.contains(&wanted) => {
                let text = format!(
                    "SOONER_TOKEN is not the token of this cluster, which is in {}: unset it, or name another directory with --cluster-dir",
                    path.display()
                );
                Err(JoinFailure::new(Kind::Token, text).into())
            }
            (Ok(tokens), _) => Ok(tokens),
            // If a file was named: a new token in it would shut out the nodes that have the old one.
            (Err(TokenError::Missing(_)), wanted) if self.token_file.is_none() => {
                let token = wanted.map_or_else(Token::generate, Ok)?;
                token.create(directory)?;
                Ok(vec![token])
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    fn of_member(&self, node: NodeId, head: &str) -> Result<(ClusterOptions, Renewal), StartError> {
        let tokens = self.tokens_of_member()?;
        let addresses = resolve(head)?;
        let first = &addresses[0];
        let host = match self.host()? {
            Some(host) => host,
            None => address_towards(*first).map_err(|error| {
                let text = format!("there is no way to the head's address {first}: {error}");
                JoinFailure::new(Kind::NoAnswer, text)
            })?,
        };
        let workers = credentials(node, Bearer::Node, &tokens);
        let options = ClusterOptions {
            identity: Identity::new(&workers).map_err(io::Error::other)?,
            workers,
            listen: Some(SocketAddr::new(host, self.port.unwrap_or(0))),
            head: Head::At(addresses),
            fate: Arc::new(Fate::default()),
            shares_memory: self.shares_memory,
        };
        Ok((options, self.renewal(node, Bearer::Node, tokens)))
    }

    fn tokens_of_member(&self) -> Result<Vec<Token>, StartError> {
        Ok(match &self.token {
            Some(text) if self.token_file.is_none() => vec![given(text)?],
            _ => Token::read_all(&self.token_file())?,
        })
    }

    fn renewal(&self, node: NodeId, bearer: Bearer, believed: Vec<Token>) -> Renewal {
        Renewal { node, bearer, file: self.token_file(), believed }
    }

    fn host(&self) -> Result<Option<IpAddr>, io::Error> {
        let Some(host) = &self.host else { return Ok(None) };
        let resolved = (host.as_str(), 0).to_socket_addrs().map_err(|error| {
            io::Error::other(format!("--host {host:?} is no address of this machine: {error}"))
        })?;
        let address = resolved.map(|address| address.ip()).next();
        match address {
            Some(address) if address.is_unspecified() => Err(io::Error::other(format!(
                "--host {host}: other nodes are told this address, so it must be one of this machine's, not all of them"
            ))),
            Some(address) => Ok(Some(address)),
            None => Err(io::Error::other(format!("--host {host:?} has no address"))),
        }
    }
}

/// What the node of a program needs to take part in the cluster of `head` (HOST:PORT). Such a node cannot be
/// dialled. The token is `token`, or is in `token_file`; since the file may get another one later, its
/// [`Renewal`] is returned, too.
///
/// # Errors
/// [`StartError`]: why it may not take part, for people.
pub fn of_program(
    node: NodeId,
    head: &str,
    token: Option<&GivenToken>,
    token_file: &Path,
    shares_memory: bool,
) -> Result<(ClusterOptions, Option<Renewal>), StartError> {
    let tokens = match token {
        Some(text) => vec![given(text)?],
        None => Token::read_all(token_file).map_err(|error| match error {
            TokenError::Missing(path) => {
                let text = format!(
                    "no token: {} is not there. Copy the file `token` from the head's cluster directory (mode 0600) and name it with token_file or SOONER_TOKEN_FILE, or put what `sooner token` prints there into SOONER_TOKEN",
                    path.display()
                );
                StartError::Join(JoinFailure::new(Kind::Token, text))
            }
            other => other.into(),
        })?,
    };
    let workers = credentials(node, Bearer::Node, &tokens);
    let options = ClusterOptions {
        identity: Identity::new(&workers).map_err(io::Error::other)?,
        workers,
        listen: None,
        head: Head::At(resolve(head)?),
        fate: Arc::new(Fate::default()),
        shares_memory,
    };
    let file = token.is_none().then(|| token_file.to_owned());
    Ok((options, file.map(|file| Renewal { node, bearer: Bearer::Node, file, believed: tokens })))
}

/// The addresses of a head: at least one.
fn resolve(head: &str) -> Result<Vec<SocketAddr>, JoinFailure> {
    let found = head.to_socket_addrs().map_err(|error| {
        let text = format!("the head's address {head:?} leads nowhere: {error}; expected HOST:PORT, with an IPv6 address in brackets");
        JoinFailure::new(Kind::NoAnswer, text)
    })?;
    let addresses: Vec<SocketAddr> = found.collect();
    if addresses.is_empty() {
        let text = format!("the name in {head:?} has no address");
        return Err(JoinFailure::new(Kind::NoAnswer, text));
    }
    Ok(addresses)
}

fn given(GivenToken(text): &GivenToken) -> Result<Token, StartError> {
    Token::parse(text.trim()).map_err(|_| {
        let text =
            "SOONER_TOKEN does not contain a token: expected what `sooner token` prints on the head's machine";
        JoinFailure::new(Kind::Token, text).into()
    })
}

fn credentials(node: NodeId, bearer: Bearer, tokens: &[Token]) -> Credentials {
    let authorities: Vec<Authority> = tokens.iter().map(Authority::new).collect();
    Credentials::issue(node, bearer, &authorities[0], &authorities.iter().collect::<Vec<_>>())
}

/// How a running node changes its token (`docs/adr/0062-changing-the-token.md`).
#[derive(Debug)]
pub struct Renewal {
    node: NodeId,
    bearer: Bearer,
    file: PathBuf,
    /// The first is the one that this node proves itself with.
    believed: Vec<Token>,
}

impl Renewal {
    /// Reads the token file again, and uses the tokens in it. Returns the new credentials of the node's
    /// processes.
    ///
    /// # Errors
    /// One sentence; nothing has changed then.
    pub fn renew(&mut self, identity: &Identity) -> Result<Credentials, String> {
        let tokens = Token::read_all(&self.file).map_err(|error| error.to_string())?;
        if !tokens.iter().any(|token| self.believed.contains(token)) {
            return Err(format!(
                "no token in {} is one that this node believes: it would be cut off from its cluster",
                self.file.display()
            ));
        }
        self.take(tokens, identity)
    }

    /// Reads the token file again, and uses the tokens in it if that may mend a failure: one end of a
    /// connection did not accept the other's certificate.
    ///
    /// # Errors
    /// One sentence; nothing has changed then.
    pub fn follow(&mut self, failure: &TlsFailure, identity: &Identity) -> Result<Credentials, String> {
        let tokens = Token::read_all(&self.file).map_err(|error| error.to_string())?;
        let helps = match failure {
            TlsFailure::OtherCluster(other) => {
                let is_of = |token| Some(Authority::new(token).fingerprint()) == other.theirs.as_ref();
                tokens.iter().any(is_of)
            }
            // A peer that does not accept this node's certificate does not tell which cluster it is of.
            _ => tokens[0] != self.believed[0],
        };
        if !helps {
            return Err(format!("{} has no other token that would do", self.file.display()));
        }
        self.take(tokens, identity)
    }

    fn take(&mut self, tokens: Vec<Token>, identity: &Identity) -> Result<Credentials, String> {
        let own = credentials(self.node, self.bearer, &tokens);
        identity.renew(&own).map_err(|error| error.to_string())?;
        self.believed = tokens;
        Ok(credentials(self.node, Bearer::Node, &self.believed))
    }

    /// Fingerprints of the accepted tokens, for people; first that of the token this node presents.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<String> {
        self.believed.iter().map(|token| Authority::new(token).fingerprint().to_string()).collect()
    }
}

/// Opens the directory of a head, which is made if it is missing.
fn make_private(path: &Path, runtime: &Path) -> io::Result<Directory> {
    Directory::make(path, runtime).map_err(|error| {
        let place = path.display();
        let text = if Fault::is_in(&error) {
            format!("must be yours with mode 0700, and nobody else's to exchange: {error}")
        } else {
            format!("cannot be made: {error}")
        };
        io::Error::new(
            error.kind(),
            format!("the cluster directory {place} {text}; or name another with --cluster-dir"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::OtherCluster;

    const NODE: NodeId = NodeId(1 << 24);
    /// Where no cluster directory of a test is.
    const RUNTIME: &str = "/nowhere";

    fn membership(name: &str) -> Membership {
        let directory = std::env::temp_dir().join(format!("sooner-test-{name}-{}", std::process::id()));
        Membership { directory, health_timeout: 5_000_000_000, ..Membership::default() }
    }

    fn options(membership: &Membership) -> (ClusterOptions, Renewal) {
        membership.options(NODE, Path::new(RUNTIME)).map_err(|error| error.to_string()).expect("starts")
    }

    fn refusal(membership: &Membership) -> (Option<Kind>, String) {
        match membership.options(NODE, Path::new(RUNTIME)) {
            Ok(_) => panic!("refused"),
            Err(StartError::Join(failure)) => (Some(failure.kind()), failure.to_string()),
            Err(StartError::Io(error)) => (None, error.to_string()),
        }
    }

    #[test]
    fn the_first_head_makes_the_token_and_the_next_one_uses_it() {
        let mut head = membership("token");
        let (first, _) = options(&head);
        assert!(first.listen.is_some_and(|listen| listen.ip().is_loopback() && listen.port() == 0));
        let made = std::fs::read_to_string(head.token_file()).expect("made");
        let (kind, text) = refusal(&head);
        assert!(kind.is_none() && text.contains("token-"), "two heads in one directory: {text}");
        drop(first);
        head.token = Some(GivenToken(made.clone()));
        drop(options(&head));
        assert_eq!(std::fs::read_to_string(head.token_file()).expect("kept"), made);
        head.token = Some(GivenToken(format!("sooner-token-1-{}", "ab".repeat(32))));
        let (kind, text) = refusal(&head);
        assert!(kind == Some(Kind::Token) && text.contains("SOONER_TOKEN is not the token"), "{text}");
        assert!(!text.contains("abab") && !format!("{head:?}").contains("abab"));
        std::fs::remove_dir_all(&head.directory).expect("clean");
    }

    #[test]
    fn a_member_needs_a_token_and_an_address_that_others_can_dial() {
        let mut member = membership("member");
        member.head = Some("127.0.0.1:6380".to_owned());
        let (kind, text) = refusal(&member);
        assert!(kind == Some(Kind::Token) && text.starts_with("no token: "), "{text}");
        member.token = Some(GivenToken(format!("sooner-token-1-{}", "0".repeat(64))));
        let (options, _) = options(&member);
        assert!(
            options.listen.is_some_and(|listen| listen.ip().is_loopback()),
            "the address by which the head is reached"
        );
        member.host = Some("0.0.0.0".to_owned());
        assert!(refusal(&member).1.contains("not all of them"));
        assert!(!member.directory.exists(), "a member keeps nothing");
    }

    #[test]
    fn a_directory_that_others_can_look_into_is_refused() {
        let head = membership("loose");
        std::fs::create_dir(&head.directory).expect("made with the mode of the umask");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&head.directory, mode).expect("mine");
        let (kind, text) = refusal(&head);
        assert!(kind.is_none() && text.contains("chmod 700"), "{text}");
        std::fs::remove_dir_all(&head.directory).expect("clean");
    }

    #[test]
    fn a_node_takes_no_token_that_has_nothing_to_do_with_its_own() {
        let head = membership("renewal");
        let (options, mut renewal) = options(&head);
        let (first, file) = (renewal.fingerprints(), head.token_file());
        let (old, new) = (Token::read(&file).expect("made"), Token::generate().expect("random numbers"));
        Token::replace(std::slice::from_ref(&new), &file).expect("written");
        assert!(renewal.renew(&options.identity).expect_err("another cluster").contains("cut off"));
        assert_eq!(renewal.fingerprints(), first);
        for (tokens, shown) in [
            (vec![old.clone(), new.clone()], &old),
            (vec![new.clone(), old.clone()], &new),
            (vec![new.clone()], &new),
        ] {
            Token::replace(&tokens, &file).expect("written");
            let workers = renewal.renew(&options.identity).expect("taken");
            assert_eq!(workers.roots.len(), tokens.len());
            assert_eq!(options.identity.cluster(), *Authority::new(shown).fingerprint());
            assert_eq!(renewal.fingerprints().len(), tokens.len());
        }
        // Who meets a peer of another token follows it if the file has that, whatever was believed.
        let later = Token::generate().expect("random numbers");
        let shown = Authority::new(&later).fingerprint().clone();
        let ours = options.identity.cluster();
        let shows = |theirs| TlsFailure::OtherCluster(OtherCluster { ours: ours.clone(), theirs });
        let refused = renewal.follow(&shows(Some(shown.clone())), &options.identity).expect_err("unknown");
        assert!(refused.contains("has no other token"), "{refused}");
        let is_refused = TlsFailure::NotAccepted(ours.clone());
        assert!(renewal.follow(&is_refused, &options.identity).is_err(), "there is no other one");
        Token::replace(std::slice::from_ref(&later), &file).expect("written");
        assert!(renewal.follow(&shows(None), &options.identity).is_err(), "nobody's certificate");
        assert!(renewal.renew(&options.identity).is_err(), "a node would be cut off");
        renewal.follow(&shows(Some(shown.clone())), &options.identity).expect("taken");
        assert_eq!(options.identity.cluster(), shown);
        Token::replace(std::slice::from_ref(&new), &file).expect("written");
        renewal.follow(&is_refused, &options.identity).expect("taken");
        std::fs::write(&file, "x").expect("written");
        assert!(renewal.renew(&options.identity).is_err());
        assert!(renewal.follow(&is_refused, &options.identity).is_err());
        std::fs::remove_dir_all(&head.directory).expect("clean");
    }
}
