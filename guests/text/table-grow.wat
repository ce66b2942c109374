;; A core module for `lighter:unit/function` that grows its table until the host refuses, then replies `refused\n`.
(module
  (memory (export "memory") 17)
  (table $functions 1 funcref)
  ;; The reply: `ok`, and a list of 8 bytes at 32.
  (data (i32.const 16) "\00\00\00\00\20\00\00\00\08\00\00\00")
  (data (i32.const 32) "refused\n")
  (global $free (mut i32) (i32.const 1024))
  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    ;; The event is all that is ever allocated, and no address is aligned to more than 8.
    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
    (global.set $free (i32.add (local.get $at) (local.get $size)))
    (local.get $at))
  (func (export "lighter:unit/handler@0.1.0#handle") (param $event i32) (result i32)
    (loop $again
      (br_if $again (i32.ge_s (table.grow $functions (ref.null func) (i32.const 1000)) (i32.const 0))))
    (i32.const 16)))
