//! The conformance suite on the seeded simulation.

macro_rules! on_sim {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        $(mod $module {
            $(#[test]
            fn $name() {
                kinfolk_testkit::harness::on_sim(
                    stringify!($name),
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*
        })*
    };
}

kinfolk_conformance::for_each_case!(on_sim);
