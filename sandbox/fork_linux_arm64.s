#include "textflag.h"

// func rawFork(trap, a1, a2, a3 uintptr) (pid, errno uintptr)
//
// The child runs on this very stack until it executes something. The address to return to is
// in the link register, which is each process's own.
TEXT ·rawFork(SB),NOSPLIT,$0-48
	MOVD	trap+0(FP), R8
	MOVD	a1+8(FP), R0
	MOVD	a2+16(FP), R1
	MOVD	a3+24(FP), R2
	MOVD	ZR, R3
	MOVD	ZR, R4
	MOVD	ZR, R5
	SVC
	MOVD	ZR, errno+40(FP)
	CMN	$4095, R0
	BCC	done
	NEG	R0, R0
	MOVD	R0, errno+40(FP)
	MOVD	ZR, R0
done:
	MOVD	R0, pid+32(FP)
	RET
