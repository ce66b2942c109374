//! The scope a handler needs, as the type of its first argument: whoever reads the signature knows who may call it.

use super::reply::Refused;
use super::types::Scope;
use crate::node::{Node, clock};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::sync::Arc;
use std::time::SystemTime;

pub struct MayCall;
pub struct MayDeploy;
pub struct MayAdmin;

macro_rules! needs {
    ($($who:ident $scope:ident),*) => {$(
        impl FromRequestParts<Arc<Node>> for $who {
            type Rejection = Refused;

            async fn from_request_parts(parts: &mut Parts, node: &Arc<Node>) -> Result<Self, Refused> {
                node.access.check(&parts.headers, Scope::$scope, clock::unix_ms(SystemTime::now()))?;
                Ok(Self)
            }
        }
    )*};
}

needs!(MayCall Call, MayDeploy Deploy, MayAdmin Admin);
