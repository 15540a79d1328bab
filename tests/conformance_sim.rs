//! The conformance suite on the seeded simulation.

macro_rules! on_sim {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                kinfolk_testkit::conformance::on_sim(
                    stringify!($name),
                    kinfolk_testkit::conformance::$module::$name,
                );
            })*
        })*
    };
}

kinfolk_testkit::for_each_case!(on_sim);
