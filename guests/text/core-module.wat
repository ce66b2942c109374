;; WebAssembly, but a core module, not a component.
(module (func (export "answer") (result i32) (i32.const 42)))
