//! A kernel that every GPU runs, for tests and measurements on real devices without a compiler.

/// `vadd` as its contract says: `c[i] = a[i] + b[i]` for `i < n`, for any grid and block.
pub const VADD_PTX: &str = "
.version 6.4
.target sm_75
.address_size 64

.visible .entry vadd(
    .param .u64 vadd_a,
    .param .u64 vadd_b,
    .param .u64 vadd_c,
    .param .align 4 .b8 vadd_push[4]
)
{
    .reg .pred %done;
    .reg .b32 %n, %i, %step, %block, %threads, %thread;
    .reg .b64 %a, %b, %c, %offset, %at;
    .reg .f32 %x, %y;

    ld.param.u64 %a, [vadd_a];
    ld.param.u64 %b, [vadd_b];
    ld.param.u64 %c, [vadd_c];
    ld.param.u32 %n, [vadd_push];
    cvta.to.global.u64 %a, %a;
    cvta.to.global.u64 %b, %b;
    cvta.to.global.u64 %c, %c;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %threads, %thread;
    mov.u32 %step, %nctaid.x;
    mul.lo.u32 %step, %step, %threads;
next:
    setp.ge.u32 %done, %i, %n;
    @%done bra end;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %at, %a, %offset;
    ld.global.f32 %x, [%at];
    add.u64 %at, %b, %offset;
    ld.global.f32 %y, [%at];
    add.f32 %x, %x, %y;
    add.u64 %at, %c, %offset;
    st.global.f32 [%at], %x;
    add.u32 %i, %i, %step;
    bra next;
end:
    ret;
}
";
