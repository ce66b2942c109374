;; A core module for `lighter:unit/function` whose start function never returns: its loop calls at each turn.
(module
  (memory (export "memory") 1)
  (func $nothing)
  (func $start (loop $again (call $nothing) (br $again)))
  (start $start)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "lighter:unit/handler@0.1.0#handle") (param $event i32) (result i32) unreachable))
