;; A core module for `lighter:unit/function` whose start function never returns.
(module
  (memory (export "memory") 1)
  (func $start (loop $again (br $again)))
  (start $start)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "lighter:unit/handler@0.1.0#handle") (param $event i32) (result i32) unreachable))
