;; A core module for the world in `unknown-import.wit`: handles events, but asks an oracle that no host has.
(module
  (import "guests:unknown-import/oracle" "ask" (func $ask (result i32)))
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
  (func (export "lighter:unit/handler@0.1.0#handle") (param $event i32) (result i32) (call $ask)))
