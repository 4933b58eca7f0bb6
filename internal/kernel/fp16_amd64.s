//go:build !purego

#include "textflag.h"

// The assembler does not know the instructions of AVX512-FP16, so they are written as bytes: prefix, opcode, operands.

// BLOCK reduces 64 bytes: Z = Z op S by VADDPH (0x58) or VMULPH (0x59), NaNs by VCMPPH (unordered) to the canonical one.
#define BLOCK(op, at, v, zs, kz, k, Z, S) \
	VMOVDQU64 at(SI), Z; \
	VMOVDQU64 at(DX), S; \
	BYTE $0x62; BYTE $0xf5; BYTE $v; BYTE $0x48; BYTE $op; BYTE $zs; \
	BYTE $0x62; BYTE $0xf3; BYTE $v; BYTE $0x48; BYTE $0xc2; BYTE $kz; BYTE $3; \
	VMOVDQU16 Z8, k, Z; \
	VMOVDQU64 Z, at(DI)

#define REDUCE(op) \
	MOVQ         dst+0(FP), DI; \
	MOVQ         a+8(FP), SI; \
	MOVQ         b+16(FP), DX; \
	MOVQ         n+24(FP), CX; \
	MOVL         $0x7e007e00, AX; \
	VPBROADCASTD AX, Z8; \
loop: \
	CMPQ CX, $256; \
	JLT  done; \
	PREFETCHT0 2048(SI); \
	PREFETCHT0 2112(SI); \
	PREFETCHT0 2176(SI); \
	PREFETCHT0 2240(SI); \
	PREFETCHT0 2048(DX); \
	PREFETCHT0 2112(DX); \
	PREFETCHT0 2176(DX); \
	PREFETCHT0 2240(DX); \
	BLOCK(op, 0, 0x7c, 0xc4, 0xc8, K1, Z0, Z4); \
	BLOCK(op, 64, 0x74, 0xcd, 0xd1, K2, Z1, Z5); \
	BLOCK(op, 128, 0x6c, 0xd6, 0xda, K3, Z2, Z6); \
	BLOCK(op, 192, 0x64, 0xdf, 0xe3, K4, Z3, Z7); \
	ADDQ $256, SI; \
	ADDQ $256, DX; \
	ADDQ $256, DI; \
	SUBQ $256, CX; \
	JMP  loop; \
done: \
	VZEROUPPER; \
	RET

// func addFP16(dst, a, b *byte, n int)
TEXT ·addFP16(SB), NOSPLIT, $0-32
	REDUCE(0x58)

// func mulFP16(dst, a, b *byte, n int)
TEXT ·mulFP16(SB), NOSPLIT, $0-32
	REDUCE(0x59)

// func features7() uint32
TEXT ·features7(SB), NOSPLIT, $0-4
	MOVL $7, AX
	XORL CX, CX
	CPUID
	MOVL DX, ret+0(FP)
	RET
