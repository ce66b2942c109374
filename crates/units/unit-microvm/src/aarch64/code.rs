//! Machine code of hostile guests.

use kernel_abi::layout::EXIT;

/// Instructions of four bytes.
#[derive(Default)]
pub struct Code(pub Vec<u8>);

/// A return, as a word in memory.
pub const RETURN: u64 = 0xd65f_03c0;

/// What [`Code::litter`] stores.
pub const FOUND_BYTES: u64 = 0x20;

/// What it finds in a processor that was never used: a register of floating point, how that is set, and the thread's.
pub fn untouched() -> Vec<u8> {
    vec![0; 0x20]
}

/// What EL0 may not do.
pub fn privileged() -> Vec<Code> {
    let instructions = [
        0xd400_0001, // svc #0
        0xd400_0002, // hvc #0
        0xd400_0003, // smc #0
        0xd420_0000, // brk #0
        0xd440_0000, // hlt #0
        0xd69f_03e0, // eret
        0xd503_42df, // msr daifset, #2
        0xd518_2000, // msr ttbr0_el1, x0
        0xd518_1000, // msr sctlr_el1, x0
        0xd518_d080, // msr tpidr_el1, x0
        0xd538_1000, // mrs x0, sctlr_el1
        0xd538_0000, // mrs x0, midr_el1
        0xd53b_e020, // mrs x0, cntpct_el0
        0xd51b_e320, // msr cntv_ctl_el0, x0
        0xd508_871f, // tlbi vmalle1
        0xd50b_7e20, // dc civac, x0
        0xd50b_7520, // ic ivau, x0
        0xd50b_7420, // dc zva, x0
    ];
    let mut all: Vec<Code> = instructions.iter().map(|word| Code::default().raw(&[*word]).spin()).collect();
    // Waiting may be over at once.
    all.push(Code::default().raw(&[0xd503_207f]).again());
    // To where a store of a word leaves: what is wider, of two registers, or no store.
    for word in [0xf900_0020, 0xa900_0020, 0x3d80_0020, 0xb940_0020, 0xd61f_0020] {
        all.push(Code::default().load_number(1, EXIT).raw(&[word]).spin());
    }
    all
}

impl Code {
    fn raw(mut self, instructions: &[u32]) -> Self {
        self.0.extend(instructions.iter().flat_map(|word| word.to_le_bytes()));
        self
    }

    /// `mov register, number`, by as many instructions as it takes.
    fn load_number(self, register: u32, number: u64) -> Self {
        let part = |index: u32| (number >> (16 * index)) as u32 & 0xffff;
        let set = |index: u32| index << 21 | part(index) << 5 | register;
        let first = self.raw(&[0xd280_0000 | set(0)]);
        (1..4).filter(|index| part(*index) != 0).fold(first, |code, index| code.raw(&[0xf280_0000 | set(index)]))
    }

    /// `str x0, [x1]`.
    pub fn store(self, at: u64, value: u64) -> Self {
        self.load_number(0, value).load_number(1, at).raw(&[0xf900_0020])
    }

    /// `ldr x0, [x1]`.
    pub fn load(self, at: u64) -> Self {
        self.load_number(1, at).raw(&[0xf940_0020])
    }

    /// `br x0`.
    pub fn jump(self, at: u64) -> Self {
        self.load_number(0, at).raw(&[0xd61f_0000])
    }

    /// `str w0, [x1]`, where it leaves.
    pub fn out(self, port: u16) -> Self {
        self.load_number(0, port.into()).load_number(1, EXIT).raw(&[0xb900_0020])
    }

    /// For ever.
    pub fn spin(self) -> Self {
        self.raw(&[0x1400_0000])
    }

    /// All of it, for ever.
    pub fn again(self) -> Self {
        let back = u32::try_from(self.0.len() / 4).unwrap();
        self.raw(&[0x1400_0000 | (0x400_0000 - back)])
    }

    /// `udf #0`.
    pub fn end(self) -> Self {
        self.raw(&[0])
    }

    /// Stores what it finds in registers, and then changes them.
    pub fn litter(self, found: u64) -> Self {
        self.load_number(1, found).raw(&[
            0x3d80_0020, // str q0, [x1]
            0xd53b_4400, // mrs x0, fpcr
            0xf900_0820, // str x0, [x1, #16]
            0xd53b_d040, // mrs x0, tpidr_el0
            0xf900_0c20, // str x0, [x1, #24]
            0x4f07_e7e0, // movi v0.16b, #255
            0xd2a0_0800, // mov x0, #0x400000
            0xd51b_4400, // msr fpcr, x0
            0xd51b_d040, // msr tpidr_el0, x0
        ])
    }
}
