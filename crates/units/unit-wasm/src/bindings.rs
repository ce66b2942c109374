//! Host traits and guest exports, generated from `contracts/wit`.

wasmtime::component::bindgen!({
    path: "../../../contracts/wit",
    inline: "
        package lighter:host;
        world everything {
            include lighter:unit/function@0.1.0;
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:keyvalue/atomics@0.2.0-draft;
            import wasi:keyvalue/batch@0.2.0-draft;
            import wasi:config/store@0.2.0-rc.1;
            import wasi:logging/logging@0.1.0-draft;
        }
    ",
    world: "lighter:host/everything",
    imports: {
        "lighter:unit/http.send": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "wasi:keyvalue/store.bucket": crate::host::keyvalue::Bucket,
    },
    require_store_data_send: true,
});

pub use lighter::unit::types;

/// What components for other hosts import, from `contracts/wit-drafts`.
pub mod drafts {
    wasmtime::component::bindgen!({
        path: ["../../../contracts/wit-drafts/keyvalue", "../../../contracts/wit-drafts/spin"],
        inline: "
            package lighter:host-drafts;
            world drafts {
                include wasi:keyvalue/imports@0.2.0-draft2;
                include fermyon:spin/imports@2.0.0;
            }
        ",
        world: "lighter:host-drafts/drafts",
        imports: { default: trappable },
        with: {
            "wasi:keyvalue/store.bucket": crate::host::keyvalue::Bucket,
            "wasi:keyvalue/atomics.cas": crate::host::drafts::Cas,
            "fermyon:spin/key-value.store": crate::host::keyvalue::Bucket,
        },
        require_store_data_send: true,
    });
}

/// What components made with Spin's SDK for WASI 0.3 import, from `contracts/wit-03`.
pub mod spin03 {
    wasmtime::component::bindgen!({
        path: ["../../../contracts/wit-03/spin-key-value", "../../../contracts/wit-03/spin-variables"],
        inline: "
            package lighter:host-spin03;
            world imports {
                import spin:key-value/key-value@3.0.0;
                import spin:variables/variables@3.0.0;
            }
        ",
        world: "lighter:host-spin03/imports",
        imports: { default: trappable },
        with: {
            "spin:key-value/key-value.store": crate::host::keyvalue::Bucket,
        },
        require_store_data_send: true,
    });
}
