//! Machine code of hostile guests.

/// Instructions with little-endian operands.
#[derive(Default)]
pub struct Code(pub Vec<u8>);

/// A return, as a word in memory.
pub const RETURN: u64 = 0xc3;

/// What [`Code::litter`] stores.
pub const FOUND_BYTES: u64 = 0x18;

/// What it finds in a processor that was never used: a register of floating point, and its control word.
pub fn untouched() -> Vec<u8> {
    [&[0; 16][..], &0x1f80_u32.to_le_bytes(), &[0; 4]].concat()
}

/// What ring 3 may not do.
pub fn privileged() -> Vec<Code> {
    let instructions: [&[u8]; 8] = [
        &[0xf4],             // hlt
        &[0xfa],             // cli
        &[0x0f, 0x22, 0xd8], // mov cr3, rax
        &[0x0f, 0x20, 0xd8], // mov rax, cr3
        &[0x0f, 0x32],       // rdmsr
        &[0x0f, 0x30],       // wrmsr
        &[0x0f, 0x01, 0x10], // lgdt [rax]
        &[0xcd, 0x80],       // int 0x80
    ];
    // syscall, where it is let pass: into nothing
    let syscall = Code::default().raw(&[0x0f, 0x05]).spin().raw(&[0x0f, 0x0b]);
    instructions.iter().map(|bytes| Code::default().raw(bytes)).chain([syscall]).collect()
}

impl Code {
    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// `mov rax, value; mov [at], rax`, through rcx.
    pub fn store(self, at: u64, value: u64) -> Self {
        self.raw(&[0x48, 0xb8])
            .raw(&value.to_le_bytes())
            .raw(&[0x48, 0xb9])
            .raw(&at.to_le_bytes())
            .raw(&[0x48, 0x89, 0x01])
    }

    /// `mov rax, [at]`.
    pub fn load(self, at: u64) -> Self {
        self.raw(&[0x48, 0xb9]).raw(&at.to_le_bytes()).raw(&[0x48, 0x8b, 0x01])
    }

    /// `mov rax, at; jmp rax`.
    pub fn jump(self, at: u64) -> Self {
        self.raw(&[0x48, 0xb8]).raw(&at.to_le_bytes()).raw(&[0xff, 0xe0])
    }

    /// `mov edx, port; out dx, eax`.
    pub fn out(self, port: u16) -> Self {
        self.raw(&[0xba]).raw(&u32::from(port).to_le_bytes()).raw(&[0xef])
    }

    /// For ever.
    pub fn spin(self) -> Self {
        self.raw(&[0xeb, 0xfe])
    }

    /// All of it, for ever.
    pub fn again(self) -> Self {
        let back = u8::try_from(256 - (self.0.len() + 2)).unwrap();
        self.raw(&[0xeb, back])
    }

    /// `hlt`.
    pub fn end(self) -> Self {
        self.raw(&[0xf4])
    }

    /// Stores what it finds in registers, and then changes them.
    pub fn litter(self, found: u64) -> Self {
        self.raw(&[0x48, 0xb9])
            .raw(&found.to_le_bytes())
            .raw(&[0x0f, 0x11, 0x01]) // movups [rcx], xmm0
            .raw(&[0x0f, 0xae, 0x59, 0x10]) // stmxcsr [rcx + 16]
            .raw(&[0x66, 0x0f, 0x76, 0xc0]) // pcmpeqd xmm0, xmm0
            .store(found + 0x20, 0x9fc0)
            .raw(&[0x0f, 0xae, 0x11]) // ldmxcsr [rcx]
    }
}
