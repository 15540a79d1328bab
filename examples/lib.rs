//! Nothing here: the programs beside this file are what this package is for.
