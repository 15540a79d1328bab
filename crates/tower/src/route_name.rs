//! What a request's job is called: method and route. Both may be text of the client's, so they
//! are cut here; what prints a name escapes it.

use http::{Extensions, Method, Uri};

/// How many characters of a method and of a route are kept.
const METHOD: usize = 16;
const ROUTE: usize = 120;

/// The name of a job.
pub(crate) fn name_of(
    method: &Method,
    uri: &Uri,
    extensions: &Extensions,
    is_grpc: bool,
    otherwise: &str,
) -> String {
    if is_grpc {
        // The path names the method of a service, and the method of HTTP is always POST.
        return cut(uri.path(), ROUTE).to_owned();
    }
    let route = matched_path(extensions).unwrap_or(otherwise);
    format!("{} {}", cut(method.as_str(), METHOD), cut(route, ROUTE))
}

#[cfg(feature = "axum")]
fn matched_path(extensions: &Extensions) -> Option<&str> {
    let path = extensions.get::<axum::extract::MatchedPath>()?;
    Some(path.as_str())
}

#[cfg(not(feature = "axum"))]
fn matched_path(_: &Extensions) -> Option<&str> {
    None
}

fn cut(text: &str, most: usize) -> &str {
    match text.char_indices().nth(most) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_whatever_the_client_sends() {
        let long = "X".repeat(5000);
        let method = Method::from_bytes(long.as_bytes()).expect("a method");
        let uri: Uri = format!("/{long}").parse().expect("a path");
        let none = Extensions::new();
        let name = name_of(&method, &uri, &none, false, "shop");
        assert_eq!(name, format!("{} shop", "X".repeat(16)));
        let name = name_of(&method, &uri, &none, true, "shop");
        assert_eq!(name, format!("/{}", "X".repeat(119)));
        let name = name_of(&Method::GET, &uri, &none, false, &"ä".repeat(500));
        assert_eq!(name, format!("GET {}", "ä".repeat(120)));
    }
}
