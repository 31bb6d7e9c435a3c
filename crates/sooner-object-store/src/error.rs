//! Errors of an object store, worded for the person who named it.
//!
//! Of a server's answer only its code and its sentence are passed on. The rest is not: it may repeat what was
//! signed.

use sooner_store::spill::{Damage, SpillPlace};

use crate::objects::{LIST, WRITE};

/// How much of an answer is shown (bytes).
const SHOWN_BYTES: usize = 400;

/// Why bytes could not be written to an object store or read from it. No error is fatal: a value that was not
/// written is still in memory, and one that cannot be read is made again if its lineage is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The text is not a URL of an object store.
    #[error(
        "{found} is no URL of an object store: {reason}. Expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
    )]
    BadUrl {
        /// The text, as far as it can be shown.
        found: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The settings in the environment cannot be used.
    #[error("the object store {url} cannot be used as the environment says: {reason}")]
    Settings {
        /// The URL.
        url: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The server does not answer.
    #[error(
        "the object store {url} does not answer: {reason}. Expected a server that can be reached from this machine. Look at the network, \
             at the endpoint (for S3: AWS_ENDPOINT_URL, AWS_REGION) and at the server"
    )]
    Unreachable {
        /// The URL.
        url: String,
        /// What was tried, and what happened.
        reason: String,
    },
    /// The store refuses the credentials.
    #[error(
        "the object store {url} refuses these credentials: {reason}. Expected credentials that may write, read, list and delete there. \
             Look at the environment (for S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION), and at \
             what they are allowed to do"
    )]
    Refused {
        /// The URL.
        url: String,
        /// The store's reason.
        reason: String,
    },
    /// There is no such bucket.
    #[error(
        "the object store {url} has no such bucket: {reason}. Expected one that is there: it is not made here. Create it, or name \
             another one; the region and the endpoint must be its own"
    )]
    NoBucket {
        /// The URL.
        url: String,
        /// The store's reason.
        reason: String,
    },
    /// An unexpected answer.
    #[error(
        "cannot {doing} in the object store {url}: {reason}. Expected an answer as S3, Google Cloud Storage and Azure give it. Look at the \
             server, and at its log"
    )]
    Failed {
        /// The URL.
        url: String,
        /// What was tried.
        doing: &'static str,
        /// The store's reason.
        reason: String,
    },
    /// An object that was written is no longer there.
    #[error(
        "an object of this session is gone from the object store {url}: {reason}. Expected that nobody deletes below the prefix while sooner \
             runs. Look for rules of the bucket that let objects expire, and for others who delete there"
    )]
    Gone {
        /// The URL.
        url: String,
        /// The store's reason.
        reason: String,
    },
    /// The bytes there are not those that were written.
    #[error(
        "a spilled value of {} bytes, at byte {} of file {} in the object store {url}, is damaged: {damage}. Expected the bytes \
             that were written. The store, or somebody who writes there, changes data", .place.length, .place.offset, .place.file
    )]
    Corrupt {
        /// The URL.
        url: String,
        /// The place of the value.
        place: SpillPlace,
        /// What is wrong there.
        damage: Damage,
    },
    /// Bytes were asked for, or given, that the value does not have.
    #[error("{bytes} bytes from byte {from} on are not those of the value of {} bytes at byte {} of file {} in the object store. \
             This is a defect of sooner", .place.length, .place.offset, .place.file)]
    OutOfRange {
        /// The value.
        place: SpillPlace,
        /// The first byte.
        from: u64,
        /// How many.
        bytes: u64,
    },
    /// The session ends, so the result is no longer wanted.
    #[error("nothing is written to the object store or read from it any more: the session ends")]
    Ending,
    /// The executor for the requests cannot be made.
    #[error(
        "cannot prepare requests to the object store {url}: {reason}. Raise the limit on descriptors (ulimit -n)"
    )]
    NoExecutor {
        /// The URL.
        url: String,
        /// The kernel's error.
        reason: String,
    },
}

impl StoreError {
    /// The error for one of the library, for the person who named the store.
    pub(crate) fn of(url: &str, doing: &'static str, error: &object_store::Error) -> Self {
        let (url, reason) = (url.to_owned(), brief(&error.to_string()));
        match error {
            // When writing or listing, only the bucket can be missing; some stores do not tell what is.
            object_store::Error::NotFound { .. }
                if [WRITE, LIST].contains(&doing) || reason.contains("NoSuchBucket") =>
            {
                Self::NoBucket { url, reason }
            }
            object_store::Error::NotFound { .. } => Self::Gone { url, reason },
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::Refused { url, reason }
            }
            _ if is_about_connection(error) => Self::Unreachable { url, reason },
            _ => Self::Failed { url, doing, reason },
        }
    }
}

/// Whether no answer came at all. The library does not expose its error type, but the connection's error is
/// below it.
fn is_about_connection(error: &object_store::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<object_store::client::HttpError>().is_some() {
            return true;
        }
        next = error.source();
    }
    false
}

/// Code and sentence of an answer in XML; otherwise the beginning of the text.
fn brief(text: &str) -> String {
    let part = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.trim())
    };
    let said = match (part("Code"), part("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        // An answer that is a page, or is cut off, is not shown.
        _ => text.split('<').next().unwrap_or_default().trim().to_owned(),
    };
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = (0..=SHOWN_BYTES.min(said.len())).rev().find(|at| said.is_char_boundary(*at)).unwrap_or(0);
    said[..end].trim_end_matches([':', '-', ' ', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_code_and_sentence_are_shown_and_nothing_else() {
        let answer = "Error performing PUT http://x in 3ms - Server returned non-2xx status code: 403 Forbidden: <?xml?>\
            <Error><Code>SignatureDoesNotMatch</Code><Message>The signature\n does not match.</Message>\
            <AWSAccessKeyId>AKIASECRET</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>";
        assert_eq!(brief(answer), "SignatureDoesNotMatch: The signature does not match");
        assert_eq!(brief("502 Bad Gateway: <html>AKIASECRET</html>"), "502 Bad Gateway");
        assert_eq!(brief(&"é".repeat(1000)).len(), SHOWN_BYTES);
    }
}
