//! The URL of a place in an object store, and connecting to it.
//!
//! Credentials come from the environment, as for other programs: `AWS_*`, `GOOGLE_*`, `AZURE_*`. A URL that
//! contains a secret is refused, and not repeated.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use crate::StoreError;

/// A request without an answer fails after this time. It is enough for an object of 8 MiB at 140 kB/s.
const REQUEST_LIMIT: &str = "60s";
const CONNECT_LIMIT: &str = "5s";
/// A connection that was idle for so long is not used again: the server may have closed it unnoticed.
const IDLE_LIMIT: &str = "15s";
/// How often a request is retried, ...
const RETRIES: usize = 4;
/// ... and for how long after the first attempt.
const RETRY_LIMIT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    S3,
    Google,
    Azure,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    kind: Kind,
    prefix: Path,
}

impl StoreUrl {
    /// Whether the text is meant as a URL, and not as a directory.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        text.contains("://")
    }

    /// Parses a URL. Makes no request.
    ///
    /// # Errors
    /// [`StoreError::BadUrl`].
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let may_hold_secret = rest.contains(['?', '#']) || host.contains(':');
        let found = if may_hold_secret { format!("{scheme}://...") } else { text.to_owned() };
        let bad = |reason: &str| StoreError::BadUrl { found: found.clone(), reason: reason.to_owned() };
        let kind = match scheme {
            "s3" | "s3a" => Kind::S3,
            "gs" => Kind::Google,
            "az" | "abfs" | "abfss" => Kind::Azure,
            _ => return Err(bad(&format!("there is no object store for {scheme:?}"))),
        };
        if may_hold_secret {
            return Err(bad(
                "it has more than a bucket and a prefix; credentials and endpoints are taken from the environment",
            ));
        }
        let is_plain =
            |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
        let is_host = match (kind, host.split_once('@')) {
            (Kind::Azure, Some((container, account))) => {
                !container.is_empty() && is_plain(container) && is_plain(account)
            }
            (_, Some(_)) => {
                return Err(StoreError::BadUrl {
                    found: format!("{scheme}://..."),
                    reason: "it has an '@'".to_owned(),
                });
            }
            (_, None) => is_plain(host),
        };
        if host.is_empty() || !is_host {
            return Err(bad("it names no bucket of letters, digits, '-', '_' and '.'"));
        }
        let prefix = Path::parse(path).map_err(|error| bad(&error.to_string()))?;
        Ok(Self { text: text.to_owned(), kind, prefix })
    }

    /// The URL as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Another possible reason when the server does not answer.
    pub(crate) fn note(&self) -> Option<&'static str> {
        let is_role = self.kind == Kind::S3
            && AmazonS3Builder::from_env().get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_none();
        is_role.then_some("AWS_ACCESS_KEY_ID is not set, so a role of this machine was asked for first")
    }

    pub(crate) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// A client for the store, with the environment's credentials. Makes no request yet.
    ///
    /// # Errors
    /// [`StoreError::Settings`].
    pub(crate) fn connect(&self) -> Result<Arc<dyn ObjectStore>, StoreError> {
        // The TLS library leaves the choice of the cryptography provider to the process, which may have
        // chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let limits = [
            (ClientConfigKey::Timeout, REQUEST_LIMIT),
            (ClientConfigKey::ConnectTimeout, CONNECT_LIMIT),
            (ClientConfigKey::PoolIdleTimeout, IDLE_LIMIT),
        ];
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        };
        let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_LIMIT };
        let built: Result<Arc<dyn ObjectStore>, object_store::Error> = match self.kind {
            Kind::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_url(&self.text).with_retry(retry);
                for (key, value) in limits {
                    builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
                }
                self.check_http(&builder)?;
                builder.build().map(|store| Arc::new(store) as _)
            }
            Kind::Google => {
                let mut builder =
                    GoogleCloudStorageBuilder::from_env().with_url(&self.text).with_retry(retry);
                for (key, value) in limits {
                    builder = builder.with_config(GoogleConfigKey::Client(key), value);
                }
                builder.build().map(|store| Arc::new(store) as _)
            }
            Kind::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_url(&self.text).with_retry(retry);
                for (key, value) in limits {
                    builder = builder.with_config(AzureConfigKey::Client(key), value);
                }
                builder.build().map(|store| Arc::new(store) as _)
            }
        };
        built.map_err(|error| StoreError::Settings { url: self.text.clone(), reason: error.to_string() })
    }

    /// Refuses an `http://` endpoint that is not allowed: the library would not tell the reason.
    fn check_http(&self, builder: &AmazonS3Builder) -> Result<(), StoreError> {
        let value = |key| builder.get_config_value(&key).unwrap_or_default();
        let s3 = value(AmazonS3ConfigKey::S3Endpoint);
        let endpoint = if s3.is_empty() { value(AmazonS3ConfigKey::Endpoint) } else { s3 };
        let is_allowed = value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
        if !endpoint.starts_with("http://")
            || ["true", "1"].contains(&is_allowed.to_ascii_lowercase().as_str())
        {
            return Ok(());
        }
        let reason = format!(
            "its endpoint {endpoint} has no encryption. Set AWS_ALLOW_HTTP=true if that is meant, or AWS_ENDPOINT_URL to one with https"
        );
        Err(StoreError::Settings { url: self.text.clone(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        StoreUrl::parse(text).expect_err("it is wrong").to_string()
    }

    #[test]
    fn buckets_and_prefixes_are_read() {
        for (text, prefix) in [
            ("s3://bucket", ""),
            ("s3://bucket/", ""),
            ("s3a://my.bucket-1/a/b", "a/b"),
            ("gs://bucket/a/", "a"),
            ("az://container/a", "a"),
            ("abfss://container@account.dfs.core.windows.net/a", "a"),
        ] {
            let url = StoreUrl::parse(text).expect(text);
            assert_eq!((url.prefix().as_ref(), url.as_str()), (prefix, text));
        }
    }

    #[test]
    fn what_is_no_place_in_an_object_store_is_refused() {
        assert!(refusal("ftp://bucket/a").contains("no object store for \"ftp\""));
        assert!(refusal("s3:///a").contains("names no bucket"));
        assert!(refusal("s3://a b/c").contains("names no bucket"));
        assert!(refusal("s3://bucket/a//b").contains("empty path segment"));
        assert!(refusal("/tmp").contains("no object store for \"\""));
    }

    #[test]
    fn secrets_in_a_url_are_not_repeated() {
        for text in
            ["s3://key:hush@bucket/a", "s3://hush@bucket/a", "s3://bucket/a?token=hush", "s3://bucket/a#hush"]
        {
            assert!(!refusal(text).contains("hush"), "{}", refusal(text));
        }
    }
}
