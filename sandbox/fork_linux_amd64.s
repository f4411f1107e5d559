#include "textflag.h"

// func rawFork(trap, a1, a2, a3 uintptr) (pid, errno uintptr)
//
// The child runs on this very stack until it executes something, and overwrites what is
// below. So the address to return to waits in a register that the kernel keeps.
TEXT ·rawFork(SB),NOSPLIT|NOFRAME,$0-48
	MOVQ	trap+0(FP), AX
	MOVQ	a1+8(FP), DI
	MOVQ	a2+16(FP), SI
	MOVQ	a3+24(FP), DX
	XORL	R10, R10
	XORL	R8, R8
	XORL	R9, R9
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	MOVQ	$0, errno+40(FP)
	CMPQ	AX, $0xfffffffffffff001 // -4095
	JCS	done
	NEGQ	AX
	MOVQ	AX, errno+40(FP)
	MOVQ	$0, AX
done:
	MOVQ	AX, pid+32(FP)
	RET
