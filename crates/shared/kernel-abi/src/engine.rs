//! Settings of wasmtime's engine on which compiled code depends. Who compiles and who loads must have the same.

/// Puts them into a `wasmtime::Config`, and returns it for more. A macro, because nothing here depends on wasmtime.
#[macro_export]
macro_rules! engine_settings {
    ($config:expr) => {
        $config
            .signals_based_traps(false)
            .memory_init_cow(false)
            .memory_reservation(0)
            .memory_guard_size(0)
            .memory_reservation_for_growth(0)
            .concurrency_support(false)
    };
}
