//! Nothing here: the suites beside this file are what this package is for.
