//! The tokens of the fleet, as far as this node goes: kept on disk, made on an anchor, passed on with each talk.

use super::Deployments;
use super::shelf::unusable;
use crate::access::SharedTokens;
use crate::{blocking, clock};
use api_types::{TokenCreated, TokenInfo, TokenRequest};
use bytes::Bytes;
use fleet_deploy::record::DOCUMENT_BYTES_MAX;
use fleet_deploy::talk::TALK_BYTES_MAX;
use fleet_trust::{NodeId, PublicKey, random};
use http::Method;
use parking_lot::Mutex;
use problem::Problem;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use whole_file::write_new;

/// The newest list, as it was signed, in the folder of the fleet.
const TOKENS: &str = "tokens.signed";

/// The list that holds, on disk and here.
pub struct KeptTokens {
    folder: PathBuf,
    newest: Mutex<Option<Arc<SharedTokens>>>,
    /// Held while it changes: each list is made from the one before.
    changing: tokio::sync::Mutex<()>,
}

impl KeptTokens {
    /// A list that is damaged is named and left out: other nodes have it too.
    ///
    /// # Errors
    /// [`problem::Code::DataUnusable`]: it cannot be read.
    pub fn open(folder: &Path, fleet: &str, ca: &PublicKey) -> Result<Self, Problem> {
        let (path, mut bytes) = (folder.join(TOKENS), Vec::new());
        // One byte more is enough to see that it is too long.
        let newest =
            match File::open(&path).and_then(|file| file.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)) {
                Ok(_) => SharedTokens::read(&bytes, fleet, ca)
                    .inspect_err(|problem| tracing::warn!("{}: {} {}", path.display(), problem.code, problem.detail))
                    .ok(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(unusable(&path, &error)),
            };
        let newest = Mutex::new(newest.map(Arc::new));
        Ok(Self { folder: folder.to_owned(), newest, changing: tokio::sync::Mutex::default() })
    }

    pub fn newest(&self) -> Option<Arc<SharedTokens>> {
        self.newest.lock().clone()
    }

    /// 0: there is no list.
    pub fn revision(&self) -> u64 {
        self.newest.lock().as_ref().map_or(0, |list| list.revision())
    }
}

impl Deployments {
    /// The tokens of the fleet, as this node knows them.
    pub fn tokens(&self) -> Vec<TokenInfo> {
        self.tokens.newest().map(|list| list.infos().cloned().collect()).unwrap_or_default()
    }

    /// Makes a token that counts at every node, and says it, once. Durable here when this returns; the other nodes
    /// know it within seconds.
    ///
    /// # Errors
    /// [`problem::Code::NotAnchor`]; what [`SharedTokens::with`] says; [`problem::Code::DataUnusable`].
    pub async fn create_token(&self, request: TokenRequest) -> Result<TokenCreated, Problem> {
        let desk = self.desk()?;
        let _changing = self.tokens.changing.lock().await;
        let asked = (request, clock::now_ms(), random()?);
        let sign = |purpose: &str, parts: &[&[u8]]| desk.sign_as_ca(purpose, parts);
        let (fleet, number) = (self.fleet(), self.claim_tokens().await?);
        let (list, created) = SharedTokens::with(self.tokens.newest().as_deref(), (&*fleet, number), asked, sign)?;
        self.settle_list(list, number).await?;
        Ok(created)
    }

    /// Removes one: it stops working here at once, and at the other nodes within seconds, or when they are back.
    ///
    /// # Errors
    /// [`problem::Code::NotAnchor`], [`problem::Code::TokenUnknown`], [`problem::Code::DataUnusable`].
    pub async fn remove_token(&self, name: &str) -> Result<(), Problem> {
        let desk = self.desk()?;
        let _changing = self.tokens.changing.lock().await;
        let sign = |purpose: &str, parts: &[&[u8]]| desk.sign_as_ca(purpose, parts);
        let (fleet, number) = (self.fleet(), self.claim_tokens().await?);
        let asked = (name, clock::now_ms());
        let list = SharedTokens::without(self.tokens.newest().as_deref(), (&*fleet, number), asked, sign)?;
        self.settle_list(list, number).await
    }

    /// Keeps a list that was made here; with several anchors, once another one has it.
    async fn settle_list(&self, list: SharedTokens, number: Option<u64>) -> Result<(), Problem> {
        if let Some(number) = number {
            self.settle_tokens(number, Bytes::copy_from_slice(list.bytes())).await?;
        }
        self.keep_tokens(list).await
    }

    /// Takes a list that another node has passed on, durably, if it is news. Says whether it is.
    pub(super) async fn take_tokens(&self, bytes: &[u8]) -> Result<bool, Problem> {
        let list = SharedTokens::read(bytes, &self.fleet(), &self.trust.ca_key())?;
        let _changing = self.tokens.changing.lock().await;
        let is_news = list.revision() > self.tokens.revision();
        if is_news {
            self.keep_tokens(list).await?;
        }
        Ok(is_news)
    }

    /// Both know the newer list then. `theirs`: the revision that the other node has.
    pub(super) async fn share_tokens(&self, node: NodeId, theirs: u64) -> Result<(), Problem> {
        const PATH: &str = "/deployments/tokens";
        let ours = self.tokens.newest();
        match ours.as_ref().map_or(0, |list| list.revision()) {
            revision if revision < theirs => {
                let list = self.ask(node, Method::GET, PATH, Bytes::new(), DOCUMENT_BYTES_MAX).await?;
                self.take_tokens(&list).await?;
            }
            revision if revision > theirs => {
                let list = ours.map(|list| Bytes::copy_from_slice(list.bytes())).unwrap_or_default();
                self.ask(node, Method::PUT, PATH, list, TALK_BYTES_MAX).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Durable first: a token that was said to be gone does not come back with a restart. What tokens that are gone
    /// have leased is ready again.
    async fn keep_tokens(&self, list: SharedTokens) -> Result<(), Problem> {
        let (list, folder) = (Arc::new(list), self.tokens.folder.clone());
        let kept = list.clone();
        let write =
            move || write_new(&folder, TOKENS, kept.bytes()).map_err(|error| unusable(&folder.join(TOKENS), &error));
        blocking(write).await?;
        let node = self.node()?;
        node.access.set_shared(Some(&list));
        let before = self.tokens.newest.lock().replace(list.clone());
        let (before, now) = (before.map(|before| before.owners()).unwrap_or_default(), list.owners());
        before.difference(&now).for_each(|gone| node.events.take_back_from(gone));
        self.changed();
        Ok(())
    }
}
