;; A core module for the world in `start-random.wit`: its start function takes a random number, as runtimes of languages
;; do for their seeds. The reply is that number and one that was taken in the call.
(module
  (import "wasi:random/random@0.2.12" "get-random-u64" (func $random (result i64)))
  (memory (export "memory") 17)
  ;; The reply: `ok`, and a list of 16 bytes at 32.
  (data (i32.const 16) "\00\00\00\00\20\00\00\00\10\00\00\00")
  (global $free (mut i32) (i32.const 1024))
  (func $start (i64.store (i32.const 32) (call $random)))
  (start $start)
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    ;; The event is all that is ever allocated, and no address is aligned to more than 8.
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func (export "lighter:unit/handler@0.1.0#handle") (param $event i32) (result i32)
    (i64.store (i32.const 40) (call $random))
    (i32.const 16)))
