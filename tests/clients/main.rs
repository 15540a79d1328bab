//! Servers, clients and databases of others in jobs, cancelled after each of their polls.

mod database;
mod grpc;
mod http_client;
mod http_server;
mod in_line;
