package sandbox

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// table says which system calls there are for a command. It is data: the calls that are
// allowed, and those that are refused by another error than ENOSYS, or on purpose. A call that is in no
// row is answered as by a kernel that does not have it, whether anybody knows it or not. Every call
// is in one row only.
type table []row

// row is a group of calls with one answer.
type row struct {
	nrs   []uintptr
	errno unix.Errno  // 0: they are made where all conditions hold
	when  []condition // in this order; the first that does not hold has the answer
}

// condition is what one argument of a call has to be for the call to be made. Only the low 32
// bits are looked at, which is what the kernel takes of each argument that stands in the tables.
type condition struct {
	arg    int
	errno  unix.Errno // the answer where it does not hold
	noBits uint32     // none of these is set; or
	not    []uint32   // it is none of these; or
	only   []uint32   // it is one of these
}

func allow(nrs ...uintptr) row { return row{nrs: nrs} }

func refuse(errno unix.Errno, nrs ...uintptr) row { return row{nrs: nrs, errno: errno} }

func allowWhen(nr uintptr, when ...condition) row { return row{nrs: []uintptr{nr}, when: when} }

// newest is the highest number that was looked at when the tables were last revised. All
// architectures share their numbers from 424 on.
const newest = 471 // rseq_slice_yield

// Offsets in struct seccomp_data; the low half of an argument comes first on the
// little-endian machines that there are tables for.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
)

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jump(op uint16, k uint32, jt, jf uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: jt, Jf: jf, K: k}
}

// answers is what the kernel does: with 0 it makes the call.
func answers(e unix.Errno) unix.SockFilter {
	k := uint32(unix.SECCOMP_RET_ALLOW)
	if e != 0 {
		k = unix.SECCOMP_RET_ERRNO | uint32(e)
	}
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}

// span is a range of numbers with one answer, up to where the next span begins.
type span struct {
	from uint32
	row
}

// spans cuts all numbers into ranges. Up to newest, those that are in no row are answered by rest.
func (t table) spans(rest unix.Errno) []span {
	of := map[uint32]row{0: {errno: rest}, newest + 1: {errno: unix.ENOSYS}}
	for _, r := range t {
		for _, nr := range r.nrs {
			n := uint32(nr)
			of[n] = row{errno: r.errno, when: r.when}
			if _, ok := of[n+1]; n < math.MaxUint32 && !ok {
				of[n+1] = row{errno: rest}
				if n >= newest {
					of[n+1] = row{errno: unix.ENOSYS}
				}
			}
		}
	}
	var out []span
	for _, n := range slices.Sorted(maps.Keys(of)) {
		r := of[n]
		if k := len(out) - 1; k >= 0 && out[k].errno == r.errno && len(out[k].when)+len(r.when) == 0 {
			continue
		}
		out = append(out, span{n, r})
	}
	return out
}

// tree searches spans for the number in the accumulator, by halves: some ten instructions for any
// call, where a list takes as many as there are rows. Kernels from 5.11 on run it once for each number when it is
// put on, and remember which calls are made whatever their arguments; those cost nothing then.
func tree(s []span) []unix.SockFilter {
	if len(s) == 1 {
		return s[0].leaf()
	}
	half := len(s) / 2
	low, high := tree(s[:half]), tree(s[half:])
	p := []unix.SockFilter{jump(unix.BPF_JGE, s[half].from, uint8(min(len(low), math.MaxUint8)), 0)}
	if len(low) > math.MaxUint8 { // too far for a conditional jump
		p = []unix.SockFilter{jump(unix.BPF_JGE, s[half].from, 0, 1), {Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(low))}}
	}
	return append(append(p, low...), high...)
}

// leaf looks at the arguments and answers.
func (s span) leaf() []unix.SockFilter {
	var p []unix.SockFilter
	for _, c := range s.when {
		p = append(p, load(offArg0+8*uint32(c.arg)))
		switch {
		case c.noBits != 0:
			p = append(p, jump(unix.BPF_JSET, c.noBits, 0, 1), answers(c.errno))
		case c.not != nil:
			for _, v := range c.not {
				p = append(p, jump(unix.BPF_JEQ, v, 0, 1), answers(c.errno))
			}
		default:
			for i, v := range c.only {
				p = append(p, jump(unix.BPF_JEQ, v, uint8(len(c.only)-i), 0))
			}
			p = append(p, answers(c.errno))
		}
	}
	return append(p, answers(s.errno))
}

// assemble turns a table of what is allowed into a filter program. Another architecture has other
// numbers and is refused whole; x32 is numbers so high that no row has them.
func assemble(arch uint32, t table) []unix.SockFilter {
	p := []unix.SockFilter{load(offArch), jump(unix.BPF_JEQ, arch, 1, 0), answers(unix.ENOSYS), load(offNr)}
	return append(p, tree(t.spans(unix.ENOSYS))...)
}

// assembleSmall is the filter of a launch that is not isolated: what it does not name and what was known
// when it was revised may be done. Programs of 32 bits go on running: compat is their
// architecture and of its numbers other is about.
func assembleSmall(arch uint32, t table, compat uint32, other table) []unix.SockFilter {
	native := append([]unix.SockFilter{load(offNr)}, tree(t.spans(0))...)
	p := append([]unix.SockFilter{load(offArch), jump(unix.BPF_JEQ, arch, 0, uint8(len(native)))}, native...)
	p = append(p, jump(unix.BPF_JEQ, compat, 1, 0), answers(unix.ENOSYS), load(offNr))
	return append(p, tree(other.spans(0))...)
}

// seccomp puts the filter of an isolated launch on the calling thread, which has
// no_new_privs set.
func seccomp() error {
	if auditArch == 0 {
		return fail(unix.ENOSYS, "filter system calls of %s", runtime.GOARCH)
	}
	return putFilter(assemble(auditArch, isolatedCalls()))
}

// filterSockets does so for one that is not isolated.
func filterSockets() error {
	if auditArch == 0 {
		return fail(unix.ENOSYS, "filter system calls of %s", runtime.GOARCH)
	}
	return putFilter(assembleSmall(auditArch, smallCalls(), compatArch, compatCalls()))
}

func putFilter(p []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 {
		return fail(e, "filter system calls")
	}
	return nil
}

// seccompAnswer asks without changing anything.
func seccompAnswer() Cap {
	if auditArch == 0 {
		return Cap{Answer: No, Detail: "no system call table for " + runtime.GOARCH}
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return answer(e)
	}
	return Cap{Answer: Yes}
}
