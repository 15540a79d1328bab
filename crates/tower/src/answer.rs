//! [`LayerAnswer`]: what the layer answers in the place of a handler, as HTTP and as gRPC.

use std::fmt;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

/// Why the layer answered instead of the handler. It is the error of a response's body that was
/// cut short, and an extension of each response that the layer has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerAnswer {
    /// The deadline of the request has passed: 504, in gRPC 4, deadline exceeded.
    TimedOut,
    /// The job of the request was cancelled, or its scope takes no more: 503, in gRPC
    /// 14, unavailable.
    Stopped,
    /// Too many requests run and wait: 503 with `Retry-After`, so many seconds; in gRPC
    /// 8, resource exhausted.
    Overloaded {
        /// When to try again, in seconds.
        retry_after: u32,
    },
    /// The handler or its body has panicked, or what it started has failed before it answered:
    /// 500, in gRPC 13, internal.
    Failed,
}

impl LayerAnswer {
    /// The status of a response over plain HTTP.
    pub fn status(self) -> StatusCode {
        match self {
            LayerAnswer::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            LayerAnswer::Stopped | LayerAnswer::Overloaded { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            LayerAnswer::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The status code of gRPC.
    pub fn grpc_code(self) -> u8 {
        match self {
            LayerAnswer::TimedOut => 4,
            LayerAnswer::Overloaded { .. } => 8,
            LayerAnswer::Failed => 13,
            LayerAnswer::Stopped => 14,
        }
    }

    fn words(self) -> &'static str {
        match self {
            LayerAnswer::TimedOut => "the deadline of the request has passed",
            LayerAnswer::Stopped => "the request was stopped: the server does not go on with it",
            LayerAnswer::Overloaded { .. } => "too many requests at once",
            LayerAnswer::Failed => "the handler failed",
        }
    }

    /// The whole response, with a body that has nothing.
    pub(crate) fn response<B>(self, is_grpc: bool, body: B) -> Response<B> {
        let mut response = Response::new(body);
        response.extensions_mut().insert(self);
        let headers = response.headers_mut();
        if is_grpc {
            let kind = HeaderValue::from_static("application/grpc");
            headers.insert(CONTENT_TYPE, kind);
            self.add_grpc_status(headers);
            return response;
        }
        if let LayerAnswer::Overloaded { retry_after } = self {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after));
        }
        *response.status_mut() = self.status();
        response
    }

    /// What the trailers of a gRPC response say.
    pub(crate) fn add_grpc_status(self, headers: &mut HeaderMap) {
        let code = HeaderValue::from(u16::from(self.grpc_code()));
        headers.insert("grpc-status", code);
        let words = HeaderValue::from_static(self.words());
        headers.insert("grpc-message", words);
    }
}

impl fmt::Display for LayerAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl std::error::Error for LayerAnswer {}

/// True for a request of gRPC, of every variant.
pub(crate) fn is_grpc(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::POST
        && (headers.get(CONTENT_TYPE))
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
