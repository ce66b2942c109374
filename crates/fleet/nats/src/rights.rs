//! What the engine lets a node say and hear: its own record, mail as itself, and its own mail.
//!
//! Anchors may do everything in the fleet's account. A node may do what is listed here, and no more, whatever it sends:
//! the engine compares each subject with this list. Reading the mail streams directly would need a right to all mail,
//! for the subject that is read stands in the body of that request; a consumer's filter stands in its subject. So an
//! anchor deletes mail that was taken.

use crate::bucket::FactBucket;
use crate::streams::{mail_stream, subjects_of_mail};
use crate::taken::subject_of_taken;
use facts::NodeName;

/// Subjects that a node may publish and subscribe to.
#[derive(Debug, PartialEq, Eq)]
pub struct Rights {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
}

impl Rights {
    pub fn of(node: &NodeName) -> Self {
        let (mail, own) = (mail_stream(node), subjects_of_mail(node));
        let facts = FactBucket::of_all().stream;
        let publish = [
            format!("mail.*.*.{node}"),
            subject_of_taken(node),
            format!("$KV.facts.node.{node}"),
            format!("$KV.facts.node.{node}.>"),
            "$JS.API.INFO".to_owned(),
            format!("$JS.API.STREAM.INFO.{facts}"),
            format!("$JS.API.STREAM.MSG.GET.{facts}"),
            // Facts are no secrets among nodes.
            format!("$JS.API.CONSUMER.CREATE.{facts}.*.$KV.facts.>"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{facts}.*"),
            format!("$JS.API.CONSUMER.CREATE.{mail}.{node}.{own}"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{mail}.{node}"),
            format!("$JS.API.CONSUMER.DELETE.{mail}.{node}"),
        ];
        Self { publish: publish.into(), subscribe: vec![own, format!("{}.>", inbox(node))] }
    }
}

/// What the subjects of answers to a node begin with.
pub fn inbox(node: &NodeName) -> String {
    format!("_INBOX_{node}")
}
